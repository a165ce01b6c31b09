// Constant expressions: PTX ISA 9.0, 4.5.3 to 4.5.6.
#include <bit>
#include <iterator>

#include "host-daemon/emulation/ptx/limits.h"
#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {
namespace {

struct Operator {
  std::string_view text;
  int precedence;
};

// As in C; a higher one binds tighter.
constexpr Operator kOperators[] = {
    {"||", 1}, {"&&", 2}, {"|", 3}, {"^", 4},  {"&", 5},  {"==", 6},
    {"!=", 6}, {"<", 7},  {">", 7}, {"<=", 7}, {">=", 7}, {"<<", 8},
    {">>", 8}, {"+", 9},  {"-", 9}, {"*", 10}, {"/", 10}, {"%", 10},
};

int PrecedenceOf(const Token& token) {
  if (token.kind != Token::Kind::kPunctuation) return 0;
  for (const Operator& op : kOperators) {
    if (token.text == op.text) return op.precedence;
  }
  return 0;
}

bool IsFloat(const Constant& c) { return c.kind != Operand::Kind::kInteger; }

double ToDouble(const Constant& c) {
  switch (c.kind) {
    case Operand::Kind::kFloat32:
      return std::bit_cast<float>(static_cast<uint32_t>(c.bits));
    case Operand::Kind::kFloat64:
      return std::bit_cast<double>(c.bits);
    default:
      return c.is_unsigned ? static_cast<double>(c.bits)
                           : static_cast<double>(static_cast<int64_t>(c.bits));
  }
}

Constant FromDouble(double value) {
  return {.kind = Operand::Kind::kFloat64, .bits = std::bit_cast<uint64_t>(value)};
}
Constant FromBool(bool value) { return {.bits = value ? uint64_t{1} : 0}; }

template <typename T>
bool Compares(std::string_view op, T a, T b, bool* result) {
  if (op == "==") return *result = a == b, true;
  if (op == "!=") return *result = a != b, true;
  if (op == "<") return *result = a < b, true;
  if (op == ">") return *result = a > b, true;
  if (op == "<=") return *result = a <= b, true;
  if (op == ">=") return *result = a >= b, true;
  return false;
}

bool FoldFloat(std::string_view op, double a, double b, Constant* result) {
  bool truth;
  if (op == "+") return *result = FromDouble(a + b), true;
  if (op == "-") return *result = FromDouble(a - b), true;
  if (op == "*") return *result = FromDouble(a * b), true;
  if (op == "/" && b != 0) return *result = FromDouble(a / b), true;
  if (Compares(op, a, b, &truth)) return *result = FromBool(truth), true;
  return false;
}

bool FoldDivision(std::string_view op, const Constant& a, const Constant& b, Constant* result) {
  if (b.bits == 0) return false;
  if (result->is_unsigned) {
    result->bits = op == "/" ? a.bits / b.bits : a.bits % b.bits;
    return true;
  }
  const auto x = static_cast<int64_t>(a.bits);
  const auto y = static_cast<int64_t>(b.bits);
  if (y == -1) {  // INT64_MIN / -1 traps
    result->bits = op == "/" ? 0 - a.bits : 0;
    return true;
  }
  result->bits = static_cast<uint64_t>(op == "/" ? x / y : x % y);
  return true;
}

// The result of a shift has the type of its left operand, that of a comparison is signed, others
// are unsigned when one operand is.
bool FoldInteger(std::string_view op, const Constant& a, const Constant& b, Constant* result) {
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;
  *result = {.is_unsigned = is_unsigned};
  bool truth;
  const bool compares = is_unsigned ? Compares(op, a.bits, b.bits, &truth)
                                    : Compares(op, static_cast<int64_t>(a.bits),
                                               static_cast<int64_t>(b.bits), &truth);
  if (compares) return *result = FromBool(truth), true;
  if (op == "||") return *result = FromBool(a.bits != 0 || b.bits != 0), true;
  if (op == "&&") return *result = FromBool(a.bits != 0 && b.bits != 0), true;
  if (op == "/" || op == "%") return FoldDivision(op, a, b, result);
  if (op == "<<" || op == ">>") {
    result->is_unsigned = a.is_unsigned;
    const bool beyond = b.bits > 63;
    if (op == "<<") return result->bits = beyond ? 0 : a.bits << b.bits, true;
    if (a.is_unsigned) return result->bits = beyond ? 0 : a.bits >> b.bits, true;
    const auto signed_bits = static_cast<int64_t>(a.bits);
    return result->bits = static_cast<uint64_t>(signed_bits >> (beyond ? 63 : b.bits)), true;
  }
  switch (op[0]) {
    case '|':
      return result->bits = a.bits | b.bits, true;
    case '^':
      return result->bits = a.bits ^ b.bits, true;
    case '&':
      return result->bits = a.bits & b.bits, true;
    case '+':
      return result->bits = a.bits + b.bits, true;
    case '-':
      return result->bits = a.bits - b.bits, true;
    default:
      return result->bits = a.bits * b.bits, true;
  }
}

// Minus flips the sign of a literal, so that a NaN's payload and the width of "0f…" are kept.
void Negate(Constant* c) {
  switch (c->kind) {
    case Operand::Kind::kFloat32:
      c->bits ^= uint64_t{1} << 31;
      break;
    case Operand::Kind::kFloat64:
      c->bits ^= uint64_t{1} << 63;
      break;
    default:
      c->bits = 0 - c->bits;
      break;
  }
}

}  // namespace

bool Parser::ParseConstant(Constant* constant) { return ParseConditional(0, constant); }

bool Parser::ParseInteger(int64_t* value) {
  const uint32_t line = peek().line;
  Constant constant;
  if (!ParseConstant(&constant)) return false;
  if (IsFloat(constant)) return FailAt(line, "an integer is expected");
  *value = static_cast<int64_t>(constant.bits);
  return true;
}

bool Parser::ParseConditional(int depth, Constant* constant) {
  if (depth > kMaxExpressionDepth) return FailAt(peek().line, "expression nested too deep");
  if (!ParseBinary(1, depth, constant)) return false;
  if (!Accept("?")) return true;
  Constant yes;
  Constant no;
  if (!ParseConditional(depth + 1, &yes) || !Expect(":") || !ParseConditional(depth + 1, &no)) {
    return false;
  }
  *constant = constant->bits != 0 ? yes : no;
  return true;
}

bool Parser::ParseBinary(int precedence, int depth, Constant* constant) {
  if (!ParseUnary(depth, constant)) return false;
  for (int next = PrecedenceOf(peek()); next >= precedence; next = PrecedenceOf(peek())) {
    const Token op = Take();
    Constant right;
    if (!ParseBinary(next + 1, depth, &right)) return false;
    const Constant left = *constant;
    const bool folded = IsFloat(left) || IsFloat(right)
                            ? FoldFloat(op.text, ToDouble(left), ToDouble(right), constant)
                            : FoldInteger(op.text, left, right, constant);
    if (!folded) return FailAt(op.line, Quoted(op.text) + " cannot be evaluated here");
  }
  return true;
}

bool Parser::ParseUnary(int depth, Constant* constant) {
  if (depth > kMaxExpressionDepth) return FailAt(peek().line, "expression nested too deep");
  if (Accept("+")) return ParseUnary(depth + 1, constant);
  if (Accept("-")) {
    if (!ParseUnary(depth + 1, constant)) return false;
    Negate(constant);
    return true;
  }
  const Token op = peek();
  if (!Accept("!") && !Accept("~")) return ParsePrimary(depth, constant);
  if (!ParseUnary(depth + 1, constant)) return false;
  if (IsFloat(*constant)) return FailAt(op.line, Quoted(op.text) + " of a float");
  if (op.text == "!") {
    *constant = FromBool(constant->bits == 0);
  } else {
    constant->bits = ~constant->bits;
  }
  return true;
}

bool Parser::ParseCast(int depth, Constant* constant, bool* is_cast) {
  *is_cast = At(".s64") || At(".u64");
  if (!*is_cast) return true;
  const bool to_unsigned = Take().text == ".u64";
  if (!Expect(")") || !ParseUnary(depth + 1, constant)) return false;
  if (IsFloat(*constant)) return FailAt(peek().line, "a cast of a float");
  constant->is_unsigned = to_unsigned;
  return true;
}

bool Parser::ParsePrimary(int depth, Constant* constant) {
  if (Accept("(")) {
    bool is_cast;
    if (!ParseCast(depth, constant, &is_cast)) return false;
    return is_cast || (ParseConditional(depth + 1, constant) && Expect(")"));
  }
  switch (peek().kind) {
    case Token::Kind::kInteger:
      constant->kind = Operand::Kind::kInteger;
      break;
    case Token::Kind::kFloat32:
      constant->kind = Operand::Kind::kFloat32;
      break;
    case Token::Kind::kFloat64:
      constant->kind = Operand::Kind::kFloat64;
      break;
    default:
      constexpr uint64_t kWarpSize = 32;
      if (!At("WARP_SZ")) return FailHere("a constant");
      Take();
      *constant = {.bits = kWarpSize};
      return true;
  }
  const Token literal = Take();
  constant->bits = literal.value;
  constant->is_unsigned = literal.is_unsigned;
  return true;
}

}  // namespace smolvm::emulation::ptx

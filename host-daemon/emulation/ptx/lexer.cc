#include "host-daemon/emulation/ptx/lexer.h"

#include <bit>
#include <charconv>

namespace smolvm::emulation::ptx {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameStart(char c) { return IsLetter(c) || c == '_' || c == '$' || c == '%'; }
bool IsNamePart(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '$'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

Lexer::Lexer(std::string_view text) : text_(text.substr(0, text.find('\0'))) { token_ = Lex(); }

Token Lexer::Take() {
  const Token taken = token_;
  if (taken.kind != Token::Kind::kEnd && taken.kind != Token::Kind::kBad) token_ = Lex();
  return taken;
}

void Lexer::SkipLine() {
  const uint32_t line = token_.line;
  while (token_.line == line && token_.kind != Token::Kind::kEnd &&
         token_.kind != Token::Kind::kBad) {
    Take();
  }
}

bool Lexer::SkipBlanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++position_;
    } else if (c == '/' && At(position_ + 1) == '/') {
      const size_t end = text_.find('\n', position_);
      position_ = end == std::string_view::npos ? text_.size() : end;
    } else if (c == '/' && At(position_ + 1) == '*') {
      const size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) return false;
      for (; position_ < end + 2; ++position_) line_ += text_[position_] == '\n';
    } else {
      break;
    }
  }
  return true;
}

Token Lexer::Make(Token::Kind kind, size_t begin) {
  Token token;
  token.kind = kind;
  token.line = line_;
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

Token Lexer::Bad(std::string_view what) {
  Token token;
  token.kind = Token::Kind::kBad;
  token.line = line_;
  token.text = what;
  return token;
}

Token Lexer::Lex() {
  if (!SkipBlanks()) return Bad("unterminated comment");
  const size_t begin = position_;
  if (begin >= text_.size()) return Make(Token::Kind::kEnd, begin);
  const char c = text_[begin];
  if (IsDigit(c)) return LexNumber();
  if (c == '"') return LexString();
  if (IsNameStart(c) && (c != '%' || IsNamePart(At(begin + 1)))) {
    ++position_;
    while (IsNamePart(At(position_))) ++position_;
    return Make(Token::Kind::kIdentifier, begin);
  }
  if (c == '.' && IsNamePart(At(begin + 1))) {
    ++position_;
    while (IsNamePart(At(position_)) ||
           (At(position_) == ':' && At(position_ + 1) == ':' && IsNamePart(At(position_ + 2)))) {
      position_ += At(position_) == ':' ? 2 : 1;
    }
    return Make(Token::Kind::kDotWord, begin);
  }
  return LexPunctuation();
}

Token Lexer::LexHexFloat(size_t digits, Token::Kind kind) {
  const size_t begin = position_;
  const char* first = text_.data() + begin + 2;
  for (size_t i = 0; i < digits; ++i) {
    if (!IsHex(At(begin + 2 + i))) return Bad("malformed floating-point literal");
  }
  position_ = begin + 2 + digits;
  if (IsNamePart(At(position_))) return Bad("malformed floating-point literal");
  Token token = Make(kind, begin);
  std::from_chars(first, first + digits, token.value, 16);
  return token;
}

Token Lexer::LexNumber() {
  const size_t begin = position_;
  const char marker = At(begin) == '0' ? At(begin + 1) : '\0';
  if (marker == 'f' || marker == 'F') return LexHexFloat(8, Token::Kind::kFloat32);
  if (marker == 'd' || marker == 'D') return LexHexFloat(16, Token::Kind::kFloat64);
  int base = 10;
  if (marker == 'x' || marker == 'X') {
    base = 16;
    position_ += 2;
  } else if (marker == 'b' || marker == 'B') {
    base = 2;
    position_ += 2;
  } else {
    size_t end = begin;
    while (IsDigit(At(end))) ++end;
    const char next = At(end);
    if ((next == '.' && IsDigit(At(end + 1))) || next == 'e' || next == 'E' ||
        (next == '.' && !IsNamePart(At(end + 1)))) {
      return LexDecimal();
    }
    if (IsDigit(marker)) base = 8;
  }
  uint64_t value = 0;
  const char* first = text_.data() + position_;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value, base);
  if (error == std::errc::result_out_of_range) return Bad("integer literal beyond 64 bits");
  if (error != std::errc()) return Bad("malformed integer literal");
  position_ += static_cast<size_t>(end - first);
  const bool is_unsigned = At(position_) == 'U' || At(position_) == 'u';
  if (is_unsigned) ++position_;
  if (IsNamePart(At(position_))) return Bad("malformed integer literal");
  Token token = Make(Token::Kind::kInteger, begin);
  token.value = value;
  // PTX ISA 4.5.1: of the unsigned type also when the value does not fit the signed one.
  token.is_unsigned = is_unsigned || value > INT64_MAX;
  return token;
}

Token Lexer::LexDecimal() {
  const size_t begin = position_;
  double value = 0;
  const char* first = text_.data() + begin;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
  if (error != std::errc()) return Bad("floating-point literal out of range");
  position_ += static_cast<size_t>(end - first);
  if (IsNamePart(At(position_))) return Bad("malformed floating-point literal");
  Token token = Make(Token::Kind::kFloat64, begin);
  token.value = std::bit_cast<uint64_t>(value);
  return token;
}

Token Lexer::LexString() {
  const size_t begin = ++position_;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    position_ += text_[position_] == '\\' && At(position_ + 1) != '\n' ? 2 : 1;
  }
  if (At(position_) != '"') return Bad("unterminated string");
  const Token token = Make(Token::Kind::kString, begin);
  ++position_;
  return token;
}

Token Lexer::LexPunctuation() {
  constexpr std::string_view kPairs[] = {"<<", ">>", "==", "!=", "<=", ">=", "&&", "||"};
  const size_t begin = position_;
  for (const std::string_view pair : kPairs) {
    if (text_.substr(begin, 2) == pair) {
      position_ += 2;
      return Make(Token::Kind::kPunctuation, begin);
    }
  }
  constexpr std::string_view kSingle = ",;:(){}[]<>=+-*/%!~&|^?@.";
  if (kSingle.find(text_[begin]) == std::string_view::npos) return Bad("unexpected character");
  ++position_;
  return Make(Token::Kind::kPunctuation, begin);
}

}  // namespace smolvm::emulation::ptx

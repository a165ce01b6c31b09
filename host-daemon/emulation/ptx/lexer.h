// PTX text to tokens.
//
// Source: PTX ISA 9.0, 4.2 (Comments) to 4.5 (Constants).
#pragma once

#include <cstdint>
#include <string_view>

namespace smolvm::emulation::ptx {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kIdentifier,   // "foo", "%r1", "$L__BB0_1", "_"
    kDotWord,      // ".global", ".shared::cluster", ".1d"
    kInteger,      // value; is_unsigned with the suffix U
    kFloat32,      // value: the bits of 0f…
    kFloat64,      // value: the bits of 0d… or of a decimal
    kString,       // text without its quotes
    kPunctuation,  // one character, or two: "<<" ">>" "==" "!=" "<=" ">=" "&&" "||"
    kBad,          // text: what; the lexer goes no further
  };
  Kind kind = Kind::kEnd;
  bool is_unsigned = false;
  uint32_t line = 1;
  std::string_view text;
  uint64_t value = 0;

  bool Is(std::string_view punctuation_or_word) const {
    return (kind == Kind::kPunctuation || kind == Kind::kDotWord || kind == Kind::kIdentifier) &&
           text == punctuation_or_word;
  }
};

class Lexer {
 public:
  // Tokens point into `text`.
  explicit Lexer(std::string_view text);

  const Token& peek() const { return token_; }
  Token Take();
  // Drops tokens up to the end of the current token's line: for directives that end without a
  // semicolon.
  void SkipLine();

 private:
  Token Lex();
  Token LexNumber();
  Token LexHexFloat(size_t digits, Token::Kind kind);
  Token LexDecimal();
  Token LexString();
  Token LexPunctuation();
  bool SkipBlanks();  // false in an unterminated comment
  Token Make(Token::Kind kind, size_t begin);
  Token Bad(std::string_view what);
  char At(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }

  std::string_view text_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  Token token_;
};

}  // namespace smolvm::emulation::ptx

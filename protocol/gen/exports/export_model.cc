#include "protocol/gen/exports/export_model.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <regex>
#include <stdexcept>

namespace smolvm::exports {
namespace {

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool TakeSuffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

bool TakePerThreadSuffix(std::string_view* name) {
  return TakeSuffix(name, "_ptds") || TakeSuffix(name, "_ptsz");
}

// "cuMemAlloc_v2" → "cuMemAlloc" and 2; `otherwise` when there is no such suffix.
int TakeVersionSuffix(std::string_view* name, int otherwise) {
  const size_t at = name->rfind("_v");
  if (at == std::string_view::npos || at + 2 == name->size()) return otherwise;
  int number = 0;
  const char* end = name->data() + name->size();
  const auto parsed = std::from_chars(name->data() + at + 2, end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return otherwise;
  name->remove_suffix(name->size() - at);
  return number;
}

std::string WithoutCommentsAndDirectives(std::string_view header) {
  std::string text;
  for (size_t at = 0; at < header.size();) {
    const std::string_view rest = header.substr(at);
    if (rest.starts_with("/*")) {
      at = std::min(header.find("*/", at + 2), header.size() - 2) + 2;
    } else if (rest.starts_with("//") || rest.starts_with("#")) {
      at = std::min(header.find('\n', at), header.size());
    } else {
      text += header[at++];
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> ParseExportList(std::string_view text) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())))
      line.remove_suffix(1);
    if (line.empty()) continue;
    if (!line.starts_with("cu") || !std::all_of(line.begin(), line.end(), IsWordChar))
      throw std::runtime_error("not a driver API name: " + std::string(line));
    if (!seen.emplace(line).second) throw std::runtime_error("listed twice: " + std::string(line));
    names.emplace_back(line);
  }
  return names;
}

void ScanTypedefs(std::string_view header, TypedefVersions* versions) {
  constexpr std::string_view kMark = "*PFN_";
  for (size_t at = header.find(kMark); at != std::string_view::npos; at = header.find(kMark, at)) {
    at += kMark.size();
    size_t end = at;
    while (end < header.size() && IsWordChar(header[end])) ++end;
    std::string_view name = header.substr(at, end - at);
    const bool per_thread = TakePerThreadSuffix(&name);
    const int version = TakeVersionSuffix(&name, 0);
    if (version > 0) (*versions)[{std::string(name), per_thread}].insert(version);
  }
}

std::vector<ProcRow> PairVersions(const std::vector<std::string>& names,
                                  const TypedefVersions& versions) {
  std::map<std::pair<std::string, bool>, std::map<int, std::string>> symbols;
  for (const std::string& symbol : names) {
    std::string_view base = symbol;
    const bool per_thread = TakePerThreadSuffix(&base);
    const int number = TakeVersionSuffix(&base, 1);
    symbols[{std::string(base), per_thread}][number] = symbol;
  }
  std::vector<ProcRow> rows;
  for (const auto& [key, by_number] : symbols) {
    const auto known = versions.find(key);
    if (known == versions.end() || known->second.size() < by_number.size())
      throw std::runtime_error("cudaTypedefs.h has too few versions of " + key.first +
                               (key.second ? " (per-thread)" : ""));
    auto version = known->second.begin();
    for (const auto& [number, symbol] : by_number)
      rows.push_back({key.first, key.second, *version++, symbol});
  }
  return rows;
}

std::vector<EnumType> ScanEnums(std::string_view header) {
  static const std::regex kHead(R"(typedef\s+enum\s+\w*\s*\{)");
  static const std::regex kName(R"((?:^|,)\s*(\w+))");
  static const std::regex kTypeName(R"(\}\s*(\w+)\s*;)");
  const std::string text = WithoutCommentsAndDirectives(header);
  std::vector<EnumType> types;
  for (std::sregex_iterator head(text.begin(), text.end(), kHead), end; head != end; ++head) {
    const auto begin = text.begin() + head->position() + head->length();
    const auto close = std::find(begin, text.end(), '}');
    std::smatch type_name;
    if (!std::regex_search(close, text.end(), type_name, kTypeName,
                           std::regex_constants::match_continuous))
      continue;
    EnumType type{type_name[1], {}};
    const std::string body(begin, close);
    for (std::sregex_iterator name(body.begin(), body.end(), kName); name != end; ++name)
      type.enumerators.push_back((*name)[1]);
    types.push_back(std::move(type));
  }
  return types;
}

}  // namespace smolvm::exports

#include "prefetch/object/s3/xml.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cache/base/words.h"
#include "prefetch/object/s3/uri.h"

namespace cube::s3 {
namespace {

constexpr std::size_t k_most_depth = 32, k_most_text = 64 << 10;

// Appends the code point as UTF-8. Accepts control characters: XML forbids references to them, but
// stores use such references in names.
bool append_code_point(std::string& text, std::uint32_t code) {
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { add(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    add(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
  return true;
}

std::string_view without_prefix(std::string_view name) {
  return name.substr(name.find(':') + 1);  // npos + 1 is 0
}

}  // namespace

bool XmlReader::fail() {
  is_sound_ = false;
  return false;
}

bool XmlReader::read_reference(std::string_view name) {
  constexpr std::pair<std::string_view, char> k_entities[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [entity, c] : k_entities) {
    if (name != entity) continue;
    text_ += c;
    return true;
  }
  if (!name.starts_with('#')) return false;
  const bool is_hex = name.starts_with("#x");
  name.remove_prefix(is_hex ? 2 : 1);
  const auto code = base::number_of<std::uint32_t>(name, is_hex ? 16 : 10);
  return code && append_code_point(text_, *code);
}

bool XmlReader::read_text(std::string_view raw) {
  if (text_.size() + raw.size() > k_most_text) return false;
  while (!raw.empty()) {
    const std::size_t plain = std::min(raw.find('&'), raw.size());
    text_ += raw.substr(0, plain);
    raw.remove_prefix(plain);
    if (raw.empty()) break;
    const std::size_t end = raw.find(';');
    if (end == std::string_view::npos || !read_reference(raw.substr(1, end - 1))) return false;
    raw.remove_prefix(end + 1);
  }
  return true;
}

bool XmlReader::skip_to(std::string_view end, std::size_t head) {
  const std::size_t at = rest_.find(end, head);
  if (at == std::string_view::npos) return false;
  rest_.remove_prefix(at + end.size());
  return true;
}

bool XmlReader::open_element(std::string_view tag) {
  const std::string_view name = without_prefix(tag.substr(0, tag.find_first_of(" \t\r\n/")));
  if (name.empty() || open_.size() == k_most_depth || (open_.empty() && has_root_)) return false;
  has_root_ = true;
  open_.push_back(path_.size());
  if (!path_.empty()) path_ += '/';
  path_ += name;
  text_.clear();
  return true;
}

bool XmlReader::close_element(std::string_view name) {
  if (open_.empty()) return false;
  const std::size_t begin = open_.back() == 0 ? 0 : open_.back() + 1;
  if (without_prefix(trimmed(name)) != std::string_view(path_).substr(begin)) return false;
  is_at_end_ = true;
  return true;
}

// Reads one piece of markup. rest_ begins with '<'.
bool XmlReader::read_markup() {
  constexpr std::string_view k_cdata = "<![CDATA[";
  if (rest_.starts_with("<?")) return skip_to("?>", 2);
  if (rest_.starts_with("<!--")) return skip_to("-->", 4);
  if (rest_.starts_with(k_cdata)) {
    const std::size_t end = rest_.find("]]>");
    if (open_.empty() || end == std::string_view::npos || text_.size() + end > k_most_text)
      return false;
    text_ += rest_.substr(k_cdata.size(), end - k_cdata.size());
    return skip_to("]]>", k_cdata.size());
  }
  if (rest_.starts_with("<!")) return false;
  // Finds the end of the tag, because a '>' can be part of an attribute's value.
  std::size_t end = 1;
  for (char quote = 0; end < rest_.size() && (rest_[end] != '>' || quote != 0); ++end) {
    if (quote != 0 ? rest_[end] == quote : rest_[end] == '"' || rest_[end] == '\'')
      quote = quote != 0 ? '\0' : rest_[end];
  }
  if (end >= rest_.size()) return false;
  const std::string_view tag = rest_.substr(1, end - 1);
  rest_.remove_prefix(end + 1);
  if (tag.starts_with('/')) return close_element(tag.substr(1));
  if (!open_element(tag)) return false;
  is_at_end_ = tag.ends_with('/');
  return true;
}

bool XmlReader::next() {
  if (!is_sound_) return false;
  if (is_at_end_) {  // leaves the element that the last call returned
    is_at_end_ = false;
    path_.resize(open_.back());
    open_.pop_back();
    text_.clear();
  }
  while (!rest_.empty()) {
    const std::size_t text = std::min(rest_.find('<'), rest_.size());
    if (!open_.empty() && !read_text(rest_.substr(0, text))) return fail();
    rest_.remove_prefix(text);
    if (rest_.empty()) break;
    if (!read_markup()) return fail();
    if (is_at_end_) return true;
  }
  if (!open_.empty() || !has_root_) return fail();
  return false;
}

std::string xml_text(std::string_view document, std::string_view path) {
  XmlReader reader(document);
  while (reader.next()) {
    if (reader.path() == path) return reader.text();
  }
  return {};
}

}  // namespace cube::s3

// Reads the XML in the answers of object stores: elements, text, CDATA, character references and
// the five entities of XML. The reader drops namespace prefixes. It refuses document types, so no
// document can define entities that expand. Thread safety: one reader belongs to one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cube::s3 {

class XmlReader {
 public:
  // `text` must outlive the reader.
  explicit XmlReader(std::string_view text) : rest_(text) {}

  // Advances to the end of the next element; children end before their parent. Returns false if the
  // document has ended or is_sound() is false.
  bool next();
  // The names of the elements from the root to the current element, such as
  // "ListBucketResult/Contents/Key".
  const std::string& path() const { return path_; }
  // The text of the current element, without the text of its children.
  const std::string& text() const { return text_; }
  // False if the document is not well formed or was refused.
  bool is_sound() const { return is_sound_; }

 private:
  bool fail();
  bool read_text(std::string_view raw);
  bool read_reference(std::string_view name);
  bool read_markup();
  bool open_element(std::string_view tag);
  bool close_element(std::string_view name);
  bool skip_to(std::string_view end, std::size_t head);

  std::string_view rest_;
  std::vector<std::size_t> open_;  // for each open element, the length of path_ before it
  std::string path_, text_;
  bool is_sound_ = true, is_at_end_ = false, has_root_ = false;
};

// Returns the text of the first element with this path, or an empty string if there is no such
// element.
std::string xml_text(std::string_view document, std::string_view path);

}  // namespace cube::s3

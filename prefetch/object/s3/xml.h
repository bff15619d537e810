// Reads the XML that object stores answer with: elements, text, CDATA, character references and the
// five entities of XML. It drops namespace prefixes. It refuses document types, so a document
// cannot define entities that expand. Thread safety: one reader belongs to one thread.
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

  // Goes to the end of the next element; children end before their parent. False: the document has
  // ended, or is_sound() is false.
  bool next();
  // The names of the elements from the root to this one: "ListBucketResult/Contents/Key".
  const std::string& path() const { return path_; }
  // The text of this element, without that of its children.
  const std::string& text() const { return text_; }
  // False: the document is not well formed, or was refused.
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
  std::vector<std::size_t> open_;  // the length of path_ in front of each open element
  std::string path_, text_;
  bool is_sound_ = true, is_at_end_ = false, has_root_ = false;
};

// The text of the first element with this path; empty if there is none.
std::string xml_text(std::string_view document, std::string_view path);

}  // namespace cube::s3

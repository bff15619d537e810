// cubeshim docs: lists the documents that were installed with this command, or prints a document.
#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "cache/base/error_text.h"
#include "cache/base/nearest_word.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/run/library.h"
#include "shim/cli/shell/markdown.h"
#include "shim/cli/shell/wrap.h"

namespace cube::cli {
namespace {

constexpr std::string_view k_ending = ".md";
constexpr std::size_t k_widest = 100;  // the most columns of a paragraph

struct Document {
  std::string name;  // "prefetch", "recipes/jupyter"
  std::string path;

  std::string_view last_part() const {
    return std::string_view(name).substr(name.rfind('/') + 1);  // npos + 1 is 0: the whole name
  }
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Adds the documents of this folder and of its subfolders. `head` is the beginning of their names,
// such as "recipes/".
void collect(const std::string& folder, const std::string& head, std::vector<Document>& found) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    std::string name = entry->d_name;
    const std::string path = fmt::format("{}/{}", folder, name);
    if (name.ends_with(k_ending)) {
      name.resize(name.size() - k_ending.size());
      found.push_back({head + lower(std::move(name)), path});
    } else if (name.find('.') == std::string::npos) {
      collect(path, fmt::format("{}{}/", head, name), found);
    }
  }
  closedir(entries);
}

std::vector<Document> all_documents() {
  std::vector<Document> found;
  // Finds the folder of the installed documents. From a build folder, finds the documents of the
  // source tree.
  const std::string folder =
      first_found({own_folder() + "../share/doc/cubeshim/doc", own_folder() + "../doc"});
  if (folder.empty()) return found;
  collect(folder, "", found);
  // Documents in subfolders come last.
  std::ranges::sort(found, {}, [](const Document& d) {
    return std::pair(d.name.find('/') != std::string::npos, d.name);
  });
  found.insert(found.begin(), {"readme", folder + "/../README.md"});
  return found;
}

// Finds the document for a name such as "prefetch", "doc/PREFETCH.md" or "jupyter".
const Document* find_document(const std::vector<Document>& documents, std::string name) {
  name = lower(std::move(name));
  if (name.starts_with("doc/")) name.erase(0, 4);
  if (name.ends_with(k_ending)) name.resize(name.size() - k_ending.size());
  auto found = std::ranges::find(documents, name, &Document::name);
  if (found == documents.end()) found = std::ranges::find(documents, name, &Document::last_part);
  return found == documents.end() ? nullptr : &*found;
}

// Calls `take` for each line of the file until `take` returns false. Returns 0 or an errno.
template <typename Take>
int read_lines(const std::string& path, Take take) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (file == nullptr) return errno;
  char line[4096];
  while (std::fgets(line, sizeof line, file.get()) != nullptr && take(std::string(line))) {
  }
  return std::ferror(file.get()) != 0 ? EIO : 0;
}

std::string title_of(const Document& document) {
  std::string title;
  read_lines(document.path, [&](const std::string& line) {
    if (line.starts_with("# ")) title = line.substr(2, line.find('\n') - 2);
    return title.empty();
  });
  return title;
}

int print_documents(const std::string& name) {
  const std::vector<Document> documents = all_documents();
  if (documents.empty())
    return complain(1,
                    "the documents did not come with this command: there is no "
                    "../share/doc/cubeshim beside its folder");
  if (name.empty()) {
    for (const auto& document : documents)
      fmt::print("{:<22}  {}\n", document.name, title_of(document));
    return 0;
  }
  const Document* const document = find_document(documents, name);
  if (document == nullptr) {
    std::vector<std::string_view> names;
    names.reserve(documents.size());
    for (const auto& d : documents) names.push_back(d.last_part());
    const auto nearest = base::nearest_word(lower(name), names);
    return complain(2,
                    fmt::format("{} is not a document{}; cubeshim docs lists them", name,
                                nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  std::string text;
  const int error = read_lines(document->path, [&](const std::string& line) {
    // Lines that begin like this are instructions for the tests of the documents.
    if (!line.starts_with("<!--")) text += line;
    return true;
  });
  const std::size_t columns = columns_of(STDOUT_FILENO);
  fmt::print("{}", columns == 0 || columns >= k_widest ? text : filled(text, columns));
  return error == 0 ? 0
                    : complain(1, fmt::format("cannot read {}: {}", document->path,
                                              base::text_of_error(error)));
}

}  // namespace

void add_docs(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("docs", "Print a document, or list all of them");
  const auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "Which document, such as prefetch; by default a list of them");
  command->callback([name, &status] { status = print_documents(*name); });
}

}  // namespace cube::cli

#include "tests/preload/freshness/mutator/answer.h"

#include <sstream>

namespace cube::mutator {
namespace {

Attributes parse_attributes(std::istream& in) {
  Attributes a;
  in >> a.inode >> a.size >> std::oct >> a.mode >> std::dec >> a.links >> a.modified_ns >>
      a.changed_ns;
  return a;
}

void parse(std::istream& in, Answer& answer) {
  std::string word;
  in >> word;
  answer.kind = word.empty() ? '?' : word[0];
  switch (answer.kind) {
    case 'E': in >> answer.error; break;
    case 'T': in >> answer.target; break;
    case 'A': answer.attributes = parse_attributes(in); break;
    case 'D':
      in >> answer.size;
      while (in >> word) {
        if (word == "A") {
          answer.attributes = parse_attributes(in);
          break;
        }
        const std::size_t colon = word.find(':');
        answer.runs.push_back({static_cast<std::uint32_t>(std::stoul(word)),
                               static_cast<std::uint32_t>(std::stoul(word.substr(colon + 1)))});
      }
      break;
    case 'L':
      while (in >> word && word != ";") answer.names.push_back(word);
      while (word == ";") {
        parse(in, answer.entries.emplace_back());
        word.clear();
        in >> word;
      }
      break;
    default: break;
  }
}

}  // namespace

std::string Ask::text() const {
  if (what == "drop" || what == "kept-stat") return what + " " + std::to_string(slot);
  if (what == "kept-read")
    return what + " " + std::to_string(slot) + " " + std::to_string(first) + " " +
           std::to_string(words);
  if (what == "keep") return what + " " + std::to_string(slot) + " " + path;
  if (what == "read") return what + " " + path + " " + std::to_string(chunk);
  if (what == "pread")
    return what + " " + path + " " + std::to_string(first) + " " + std::to_string(words);
  return what + " " + path;
}

Answer parse_answer(const std::string& line) {
  Answer answer;
  std::istringstream in(line);
  in >> answer.begin >> answer.end >> std::ws;
  std::getline(in, answer.text);
  std::istringstream text(answer.text);
  parse(text, answer);
  for (Answer& entry : answer.entries) {
    entry.begin = answer.begin;
    entry.end = answer.end;
  }
  return answer;
}

}  // namespace cube::mutator

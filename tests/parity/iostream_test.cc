// C++ streams, which read through libc's FILE and its fd.
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/parity_case.h"

PARITY(Iostream, ReadsWordsAndLines) {
  std::ifstream in(t.text("f", "one 2 3.5\nline two\nlast"));
  std::string word;
  int number = 0;
  double fraction = 0;
  in >> word >> number >> fraction;
  t.line(word + std::to_string(number) + std::to_string(fraction));
  std::getline(in, word);
  std::getline(in, word);
  t.line(word);
  t.line(std::to_string(in.tellg()));
  std::getline(in, word);
  t.line(word + (in.eof() ? " eof" : "") + (in.fail() ? " fail" : ""));
  std::getline(in, word);
  t.line(in.fail() ? "fail" : "good");
}

PARITY(Iostream, SeeksAndTells) {
  std::ifstream in(t.file("f", 50000), std::ios::binary);
  in.seekg(0, std::ios::end);
  t.line(std::to_string(in.tellg()));
  in.seekg(40000);
  char got[16];
  in.read(got, 16);
  t.bytes("got", got, 16);
  in.seekg(-8, std::ios::cur);
  in.read(got, 8);
  t.bytes("got", got, 8);
  t.line(std::to_string(in.tellg()));
  in.seekg(-1, std::ios::beg);
  t.line(in.fail() ? "fail" : "good");
  in.clear();
  in.seekg(0);
  t.line(std::to_string(in.peek()));
  t.line(std::to_string(in.rdbuf()->in_avail()));
  in.unget();
  t.line(in.fail() ? "fail" : "good");
}

PARITY(Iostream, WholeFileByItsBuffer) {
  for (const std::size_t size : {0UL, 1UL, 8191UL, 8192UL, 100000UL}) {
    std::ifstream in(t.file("f" + std::to_string(size), size), std::ios::binary);
    std::stringstream all;
    if (size != 0) all << in.rdbuf();
    t.bytes("rdbuf", all.str().data(), all.str().size());
    std::ifstream again(t / ("f" + std::to_string(size)), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(again)),
                           std::istreambuf_iterator<char>());
    t.bytes("iterator", text.data(), text.size());
    std::ifstream atEnd(t / ("f" + std::to_string(size)), std::ios::binary | std::ios::ate);
    t.line(std::to_string(atEnd.tellg()));
  }
}

PARITY(Iostream, FileBuffer) {
  std::filebuf buffer;
  t.line(buffer.open(t.file("f", 1000), std::ios::in) != nullptr ? "open" : "refused");
  char got[100];
  t.line(std::to_string(buffer.sgetn(got, 100)));
  t.bytes("got", got, 100);
  t.line(std::to_string(buffer.pubseekoff(0, std::ios::cur)));
  t.line(std::to_string(buffer.pubseekoff(-10, std::ios::end)));
  t.line(std::to_string(buffer.sgetn(got, 100)));
  t.line(std::to_string(buffer.in_avail()));
  t.line(buffer.close() != nullptr ? "closed" : "not closed");
  t.line(buffer.is_open() ? "open" : "shut");
}

PARITY(Iostream, MissingFilesAndDirectoriesFail) {
  std::ifstream missing(t / "none");
  t.line(missing.is_open() ? "open" : "refused");
  std::ifstream directory(t.dir("d"));
  std::string word;
  directory >> word;
  t.line(directory.fail() ? "fail" : "good");
  std::ofstream out(t / "new");
  out << "text";
  out.close();
  std::ifstream in(t / "new");
  in >> word;
  t.line(word);
  std::fstream both(t / "new", std::ios::in | std::ios::out);
  both << "TE";
  both.seekg(0);
  both >> word;
  t.line(word);
}

PARITY(Iostream, ReopenedForAnotherFile) {
  std::ifstream in(t.text("a", "alpha"));
  std::string word;
  in >> word;
  in.close();
  in.clear();
  in.open(t.text("b", "beta"));
  in >> word;
  t.line(word);
  in.close();
  const int fd = CALL(open(t / "a", O_RDONLY));
  CALL(close(fd));
}

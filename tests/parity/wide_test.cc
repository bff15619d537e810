// Wide characters on streams. Each call, under each of its names, is the first call on a new
// stream. Also streams that mix wide and narrow calls.
#include <locale.h>
#include <wchar.h>

#include <cstdarg>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {

constexpr const char* k_text = "gr\xc3\xbc\xc3\x9f\x65 an alle\n17 zweite Zeile\n";

// libc may lack a name that the library knows (the __isoc23 ones came with glibc 2.38).
bool is_there(const char* name) { return dlsym(RTLD_DEFAULT, name) != nullptr; }

template <typename Body>
void on_a_stream(cube::parity::Case& t, const char* name, Body&& body) {
  if (!is_there(name)) return;
  FILE* const stream = STDIO(nullptr, fopen(t.text(name, k_text), "r"));
  if (stream == nullptr) return;
  body(name, stream);
  CALL(fwide(stream, 0) > 0);
  CALL(fgetwc(stream));
  CALL(ferror(stream));
  CALL(fclose(stream));
}

int scan_by_list(const char* name, FILE* stream, const wchar_t* format, ...) {
  va_list list;
  va_start(list, format);
  const int result = function<int(FILE*, const wchar_t*, va_list)>(name)(stream, format, list);
  va_end(list);
  return result;
}

}  // namespace

PARITY(Wide, CharactersByEveryName) {
  setlocale(LC_CTYPE, "C.UTF-8");
  for (const char* name : {"fgetwc", "getwc", "fgetwc_unlocked", "getwc_unlocked"}) {
    on_a_stream(t, name,
                [&](const char* n, FILE* stream) { CALL(function<wint_t(FILE*)>(n)(stream)); });
  }
  on_a_stream(t, "ungetwc", [&](const char* n, FILE* stream) {
    CALL(function<wint_t(wint_t, FILE*)>(n)(L'y', stream));
  });
  for (const char* name : {"fputwc", "putwc"}) {
    on_a_stream(t, name, [&](const char* n, FILE* stream) {
      CALL(function<wint_t(wchar_t, FILE*)>(n)(L'y', stream));
    });
  }
  on_a_stream(t, "fputws", [&](const char* n, FILE* stream) {
    CALL(function<int(const wchar_t*, FILE*)>(n)(L"yes", stream));
  });
  on_a_stream(t, "fwide", [&](const char* n, FILE* stream) {
    CALL(function<int(FILE*, int)>(n)(stream, 1) > 0);
  });
  setlocale(LC_CTYPE, "C");
}

PARITY(Wide, LinesByEveryName) {
  setlocale(LC_CTYPE, "C.UTF-8");
  wchar_t line[40] = {};
  for (const char* name : {"fgetws", "fgetws_unlocked"}) {
    on_a_stream(t, name, [&](const char* n, FILE* stream) {
      CALL(function<wchar_t*(wchar_t*, int, FILE*)>(n)(line, 40, stream) != nullptr);
      t.bytes("line", line, sizeof line);
    });
  }
  for (const char* name : {"__fgetws_chk", "__fgetws_unlocked_chk"}) {
    on_a_stream(t, name, [&](const char* n, FILE* stream) {
      CALL(function<wchar_t*(wchar_t*, std::size_t, int, FILE*)>(n)(line, 40, 40, stream) !=
           nullptr);
      t.bytes("line", line, sizeof line);
    });
  }
  setlocale(LC_CTYPE, "C");
}

PARITY(Wide, WordsByEveryName) {
  setlocale(LC_CTYPE, "C.UTF-8");
  wchar_t word[40] = {};
  for (const char* name : {"fwscanf", "__isoc99_fwscanf", "__isoc23_fwscanf"}) {
    on_a_stream(t, name, [&](const char* n, FILE* stream) {
      CALL(function<int(FILE*, const wchar_t*, ...)>(n)(stream, L"%39ls", word));
      t.bytes("word", word, sizeof word);
    });
  }
  for (const char* name : {"vfwscanf", "__isoc99_vfwscanf", "__isoc23_vfwscanf"}) {
    on_a_stream(t, name, [&](const char* n, FILE* stream) {
      CALL(scan_by_list(n, stream, L"%39ls", word));
      t.bytes("word", word, sizeof word);
    });
  }
  setlocale(LC_CTYPE, "C");
}

PARITY(Stdio, WideCharacters) {
  setlocale(LC_ALL, "C.UTF-8");
  const char* const path = t.text("f", "\xc3\xbcml\xc3\xa4ut one\nsecond 42\n\nlast without end");
  for (const char* name : {"fgetws", "fgetws_unlocked"}) {
    FILE* const stream = STDIO(nullptr, fopen(path, "r"));
    CALL(fwide(stream, 0));
    wchar_t line[64];
    while (function<wchar_t*(wchar_t*, int, FILE*)>(name)(line, 64, stream) != nullptr) {
      t.line(std::to_string(wcslen(line)) + " " + std::to_string(line[0]));
    }
    CALL(fwide(stream, 0));
    CALL(feof(stream));
    CALL(fgetc(stream));
    CALL(fclose(stream));
  }
  for (const char* name : {"fgetwc", "getwc", "fgetwc_unlocked", "getwc_unlocked"}) {
    FILE* const stream = STDIO(nullptr, fopen(path, "r"));
    const auto get = function<wint_t(FILE*)>(name);
    t.line(std::to_string(get(stream)) + " " + std::to_string(get(stream)));
    CALL(ungetwc(L'x', stream));
    t.line(std::to_string(get(stream)));
    CALL(ftell(stream));
    CALL(fseek(stream, 15, SEEK_SET));
    wchar_t word[32] = {};
    int number = 0;
    CALL(fwscanf(stream, L"%31ls %d", word, &number));
    t.line(std::to_string(wcslen(word)) + " " + std::to_string(number));
    rewind(stream);
    t.line(std::to_string(get(stream)));
    CALL(fclose(stream));
  }
  FILE* const oriented = STDIO(nullptr, fopen(path, "r"));
  CALL(fwide(oriented, 1));
  CALL(fwide(oriented, -1));
  t.line(std::to_string(fgetwc(oriented)));
  CALL(lseek(fileno(oriented), 0, SEEK_CUR));
  FILE* const again = STDIO(nullptr, freopen(path, "r", oriented));
  t.line(std::to_string(fgetwc(again)));
  CALL(fclose(again));
}

PARITY(Stdio, WideCallsOnAStreamOfBytes) {
  const char* const path = t.text("f", k_text);
  FILE* const stream = STDIO(nullptr, fopen(path, "r"));
  wchar_t line[64];
  CALL(fgetc(stream));
  t.expect_served(fileno(stream));
  CALL(fwide(stream, 0));
  CALL(fwide(stream, 1));
  CALL(fgetws(line, 64, stream));
  t.line(std::to_string(fgetwc(stream)));
  t.line(std::to_string(ungetwc(L'x', stream)));
  CALL(fwscanf(stream, L"%63ls", line));
  CALL(fgetc(stream));
  CALL(fclose(stream));
  FILE* const reader = STDIO(nullptr, fopen(path, "r"));
  CALL(fputwc(L'x', reader));
  CALL(ferror(reader));
  CALL(fclose(reader));
  FILE* const other = STDIO(nullptr, fopen(path, "r"));
  CALL(fputws(L"x", other));
  CALL(ferror(other));
  CALL(fclose(other));
}

// Opens more streams than the library can record.
PARITY(Stdio, ManyWideStreams) {
  FILE* streams[80];
  const char* const path = t.text("f", k_text);
  for (FILE*& stream : streams) stream = STDIO(nullptr, fopen(path, "r"));
  for (FILE* stream : streams) t.line(std::to_string(fgetwc(stream)));
  for (FILE* stream : streams) CALL(fclose(stream));
}

"""Folds deliberate faults into a C++ source, so that one build contains all faults and the
environment selects one.

A fault becomes `{ if (CUBESHIM_FAULT(id)) { with the fault } else { without it } }`, around the
whole statements that contain its text. If these statements include a declaration, they are extended
to the end of the block, so that the lifetime of the declared objects stays the same. Text outside
the body of a function, such as a constant, is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADER_NAME = "cubeshim_fault.h"
MOST = 1 << 16  # ids are below it
# The names of both variables do not begin with CUBESHIM_, because tests clear such variables. If a
# program's environment was cleared, the variables are read from the environment of the first
# process. In a test's namespace, this is the tool's environment. This code calls no function of
# libc, because the library replaces some of them, and because the code runs before libc is ready.
HEADER = r"""// Made by tests/house/mutants/run.py, only in its copy of the tree. $MUTANT_FAULT is
// the id of the fault that is on. The file $MUTANT_REACHED gets a byte for each place that is
// reached.
#pragma once

extern "C" char** environ;

namespace cubeshim_fault {

#define CUBESHIM_FAULT_SHARED __attribute__((visibility("hidden"))) inline
CUBESHIM_FAULT_SHARED int g_which = -1;  // -1: not read yet
CUBESHIM_FAULT_SHARED volatile unsigned char* g_reached = nullptr;

inline long kernel(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#endif
}

inline const char* value_in(const char* entry, const char* name) {
  while (*name != '\0' && *entry == *name) ++entry, ++name;
  return *name == '\0' && *entry == '=' ? entry + 1 : nullptr;
}

struct Variables {
  const char* fault = nullptr;
  const char* reached = nullptr;

  void look_at(const char* entry) {
    if (const char* value = value_in(entry, "MUTANT_FAULT")) fault = value;
    if (const char* value = value_in(entry, "MUTANT_REACHED")) reached = value;
  }
};

__attribute__((noinline, cold)) CUBESHIM_FAULT_SHARED void read_environment() {
#if defined(__x86_64__)
  constexpr long openat = 257, mmap = 9, munmap = 11, read = 0, close = 3;
#else
  constexpr long openat = 56, mmap = 222, munmap = 215, read = 63, close = 57;
#endif
  const auto open = [](const char* path, long flags) {
    return kernel(openat, -100, reinterpret_cast<long>(path), flags | 02000000, 0, 0, 0);
  };
  constexpr long room = 1 << 17;
  Variables found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    found.look_at(*entry);
  }
  const long text = found.fault == nullptr ? kernel(mmap, 0, room, 3, 0x22, -1, 0) : -1;
  const bool is_mapped = text > 0 || text < -4095;
  if (is_mapped) {
    const long fd = open("/proc/1/environ", 0);
    if (fd >= 0) kernel(read, fd, text, room - 1, 0, 0, 0);
    if (fd >= 0) kernel(close, fd, 0, 0, 0, 0, 0);
    for (const char* at = reinterpret_cast<const char*>(text); *at != '\0'; ++at) {
      found.look_at(at);
      while (*at != '\0') ++at;
    }
  }
  if (found.reached != nullptr) {
    const long fd = open(found.reached, 02);
    if (fd >= 0) {
      const long place = kernel(mmap, 0, MOST_FAULTS, 3, 1, fd, 0);
      if (place > 0 || place < -4095) g_reached = reinterpret_cast<volatile unsigned char*>(place);
      kernel(close, fd, 0, 0, 0, 0, 0);
    }
  }
  int which = 0;
  if (const char* digit = found.fault) {
    for (; *digit >= '0' && *digit <= '9'; ++digit) which = which * 10 + (*digit - '0');
  }
  if (is_mapped) kernel(munmap, text, room, 0, 0, 0, 0);
  __atomic_store_n(&g_which, which, __ATOMIC_RELEASE);
}

inline bool is_on(int id) {
  if (__builtin_expect(__atomic_load_n(&g_which, __ATOMIC_RELAXED) < 0, 0)) read_environment();
  if (__builtin_expect(g_reached != nullptr, 0) && g_reached[id] == 0) g_reached[id] = 1;
  return __builtin_expect(g_which == id, 0);
}

// Before the other initialisers, and before the program can change its environment.
__attribute__((constructor(101), used)) static void read_early() {
  if (g_which < 0) read_environment();
}

}  // namespace cubeshim_fault

#define CUBESHIM_FAULT(id) (!__builtin_is_constant_evaluated() && ::cubeshim_fault::is_on(id))
""".replace("MOST_FAULTS", str(MOST))

TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/|\#(?:\\\n|[^\n])*)
  | (?P<text>(?:u8|[uUL])?(?:R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"
                             |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<word>[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|['\w.])*)
  | (?P<sign><<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||.)
""", re.X | re.S,
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
DECLARES = re.compile(
    r"(?:const|constexpr|static|thread_local|auto|using|struct|class|union|enum|typedef|register"
    r"|alignas|volatile|extern|unsigned|signed|long|short|decltype)\b"
    r"|(?:::)?[A-Za-z_][\w:]*(?:\s*<[^;]*?>(?:::\w+)*)?(?:\s+const)?"  # a type
    r"(?:\s*[&*]+\s*|\s+)[A-Za-z_]\w*\s*(?:[=;{(\[,]|$)"  # and a name
)
NO_TYPES = {
    "return", "delete", "throw", "goto", "break", "continue", "new", "case", "co_return",
    "co_await", "co_yield", "else"
}


@dataclass
class Fault:
    """A row's text at its place, as offsets into the source."""

    id: int
    old: str
    new: str
    begin: int = 0
    end: int = 0
    text: str = ""  # the text at this place with the fault


class Source:
    def __init__(self, text: str) -> None:
        self.text = text
        every = list(TOKEN.finditer(text))
        self.tokens = [m for m in every if m["space"] is None]
        self.comments = [m.span() for m in every if (m["space"] or "").startswith("/")]
        self.directives = [m.span() for m in every if (m["space"] or "").startswith("#")]
        self.words = [m.group() for m in self.tokens]
        self.match: dict[int, int] = {}
        self.inside: list[int] = []  # for each token: its enclosing bracket, or -1
        stack: list[int] = []
        for i, word in enumerate(self.words):
            if word in CLOSE and stack and OPEN[self.words[stack[-1]]] == word:
                self.match[self.match.setdefault(i, stack.pop())] = i
            self.inside.append(stack[-1] if stack else -1)
            if word in OPEN:
                stack.append(i)

    def word(self, i: int) -> str:
        return self.words[i] if 0 <= i < len(self.words) else ""

    def is_block(self, i: int) -> bool:
        """Returns True if the brace begins statements, and not a class, a namespace or a list of
        values."""
        before = self.word(i - 1)
        if before in {
                ")", "else", "do", "try", "]", ";", "{", "}", ":", "const", "noexcept", "override",
                "mutable",
        }:
            return True
        j = i - 1  # a return type
        while j >= 0 and self.words[j] not in {";", "{", "}", "("}:
            if self.words[j] == "->":
                return self.word(j - 1) in {")", "]", "const", "noexcept", "mutable"}
            j = self.match[j] - 1 if self.words[j] in CLOSE and j in self.match else j - 1
        return False

    def end_of_statement(self, i: int) -> int:
        """Returns the token after the statement or label that begins with token i."""
        word = self.word(i)
        if word == "{":
            return self.match[i] + 1
        if word in {"if", "for", "while", "switch"}:
            i = self.end_of_statement(self.behind_header(i))
            return self.end_of_statement(i + 1) if word == "if" and self.word(i) == "else" else i
        if word == "do":
            i = self.end_of_statement(i + 1)
        elif word == "try":
            i = self.end_of_statement(i + 1)
            while self.word(i) == "catch":
                i = self.end_of_statement(self.behind_header(i))
            return i
        while self.word(i) not in {";", "}", ""}:
            if word in {"case", "default"} and self.words[i] == ":":
                return i + 1
            i = self.match[i] + 1 if self.words[i] in OPEN else i + 1
        return i + 1

    def behind_header(self, i: int) -> int:
        while self.word(i) != "(":
            i += 1
        i = self.match[i] + 1
        while self.word(i) == "[":
            i = self.match[i] + 1
        return i

    def is_label(self, i: int) -> bool:
        return self.word(i) in {
            "case", "default"
        } or (re.match(r"[A-Za-z_]", self.word(i)) is not None and self.word(i + 1) == ":")

    def declares(self, begin: int, end: int) -> bool:
        text = " ".join(self.words[begin:end])
        return (self.words[begin] not in NO_TYPES
                and DECLARES.match(text.replace(" :: ", "::").replace(" <", "<")) is not None)

    def statements_around(self, first: int, last: int) -> tuple[int, int] | None:
        """Returns the statements that contain these tokens, as a range of tokens."""
        block = self.inside[first]
        while block >= 0 and not (self.words[block] == "{" and self.is_block(block)
                                  and block < first and self.match.get(block, -1) > last):
            block = self.inside[block]
        if block < 0:
            return None
        close, i, run = self.match[block], block + 1, []
        while i < close:
            end = self.end_of_statement(i)
            if end > first and i <= last:
                run.append((i, end))
            i = end
        if not run or any(self.is_label(begin) for begin, _ in run):
            return None
        if len(run) == 1:
            run = [self.part_of_statement(*run[0], first, last)]
        begin, end = run[0][0], run[-1][1]
        if any(self.declares(*statement) for statement in run):
            i = end
            while i < close:
                if self.is_label(i):
                    return None
                i = end = self.end_of_statement(i)
        return begin, end

    def part_of_statement(self, begin: int, end: int, first: int, last: int) -> tuple[int, int]:
        """Returns the statement itself, or the part after `if (...)` or `else` if it has no
        braces."""
        while self.word(begin) in {"if", "for", "while"}:
            body = self.behind_header(begin)
            end_of_body = self.end_of_statement(body)
            if first >= body and last < end_of_body:
                part = body, end_of_body
            elif first > end_of_body and self.word(end_of_body) == "else":
                part = end_of_body + 1, end
            else:
                break
            if self.declares(*part):
                break
            begin, end = part
        return begin, end

    def place(self, fault: Fault) -> bool:
        """Finds the place around which the fault is folded. Returns False if there is none."""
        at = self.text.find(fault.old)
        if at < 0:
            return False
        # The part that actually changes, in whole tokens.
        old, new = fault.old, fault.new
        same = 0
        while same < min(len(old), len(new)) and old[same] == new[same]:
            same += 1
        tail = 0
        while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        begin, end = at + same, at + len(old) - tail
        if "#" in new or any(
                start < max(end, begin + 1) and begin < stop for start, stop in self.directives):
            return False
        touched = [i for i, m in enumerate(self.tokens) if m.end() > begin and m.start() < end]
        groups = [touched]
        if not touched:  # something is inserted between two tokens
            before = max((i for i, m in enumerate(self.tokens) if m.end() <= begin), default=-1)
            groups = [[i] for i in (before, before + 1) if 0 <= i < len(self.tokens)]
        for tokens in groups:
            run = self.statements_around(*self.whole_brackets(tokens[0], tokens[-1]))
            if run is not None:
                fault.begin = min(begin, self.tokens[run[0]].start())
                fault.end = max(end, self.tokens[run[1] - 1].end())
                for start, stop in self.comments:
                    if start < fault.begin <= stop:
                        fault.begin = start
                    if start < fault.end < stop:
                        fault.end = stop
                break
        else:
            return False
        fault.text = (self.text[fault.begin:begin] + new[same:len(new) - tail] +
                      self.text[end:fault.end])
        return True

    def whole_brackets(self, first: int, last: int) -> tuple[int, int]:
        i = first
        while i <= last:
            pair = self.match.get(i, i)
            first, last, i = min(first, pair), max(last, pair), pair if pair < first else i + 1
        return first, last


@dataclass
class Folded:
    text: str = ""
    # The first line, the last line and the id of each fault; inner ones come first.
    lines: list[tuple[int, int, int]] = field(default_factory=list)
    left: list[int] = field(default_factory=list)  # the ids that could not be folded


def render(source: str, begin: int, end: int, faults: list[Fault]) -> list[tuple[str, int]]:
    """Returns pieces of text, each with a number: the id of a fault if its wrapping begins with
    this piece, the negative id if it ends there, otherwise 0."""
    pieces: list[tuple[str, int]] = []
    at = begin
    while faults:
        outer, inner, rest = faults[0], [], []
        for fault in faults[1:]:
            (inner if fault.end <= outer.end else rest).append(fault)
        pieces.append((source[at:outer.begin], 0))
        within = render(source, outer.begin, outer.end, inner)
        pieces += [(f"{{ if (CUBESHIM_FAULT({outer.id})) {{\n", outer.id), (outer.text, 0),
                   ("\n} else {\n", 0), *within, ("\n} }", -outer.id)]
        at, faults = outer.end, rest
    return [*pieces, (source[at:end], 0)]


def fold(text: str, faults: list[Fault], include: str) -> Folded:
    source, done = Source(text), Folded()
    placed: list[Fault] = []
    for fault in faults:
        if not source.place(fault) or any(
                max(other.begin, fault.begin) < min(other.end, fault.end)
                and not (other.begin <= fault.begin and fault.end <= other.end)
                and not (fault.begin <= other.begin and other.end <= fault.end)
                for other in placed):
            done.left.append(fault.id)
        else:
            placed.append(fault)
    placed.sort(key=lambda fault: (fault.begin, -fault.end))
    line, begins = 2, {}
    done.text = f'#include "{include}"\n'
    for piece, mark in render(text, 0, len(text), placed):
        if mark > 0:
            begins[mark] = line
        line += piece.count("\n")
        if mark < 0:
            done.lines.append((begins[-mark], line, -mark))
        done.text += piece
    return done

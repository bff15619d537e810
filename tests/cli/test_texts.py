"""The command's texts for shells and for man. Each shell is tested in the way a user uses it, by
the Tab key."""
import gzip
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest
from pathlib import Path

from cli_case import COMMAND, Case

PROMPT = "ready>"
# The file that receives the line that the Tab key has completed.
PRINTS = "printf '<%s>' \"$@\"; printf 'end%s\\n' ed;"


def shell_words(folder, shell, script):
    """Returns the words that start the shell with this script, and the environment that they
    need."""
    if shell == "bash":
        rc = folder / "bashrc"
        rc.write_text(
            f"PS1='{PROMPT}'\nbind 'set bell-style none' 'set enable-bracketed-paste off'\n"
            f"source {script}\ncubeshim() {{ {PRINTS} }}\n")
        return ["bash", "--noprofile", "--rcfile", rc, "-i"], {}
    if shell == "zsh":
        functions = folder / "functions"
        functions.mkdir(exist_ok=True)
        (functions / "_cubeshim").write_text(script.read_text())
        (folder / ".zshrc").write_text(
            f"PS1='{PROMPT}'\nunsetopt zle_bracketed_paste\nfpath=({functions} $fpath)\n"
            f"autoload -Uz compinit && compinit -u -d {folder}/dump\ncubeshim() {{ {PRINTS} }}\n")
        return ["zsh", "-d", "-i"], {"ZDOTDIR": str(folder)}
    begin = (
        f"function fish_prompt; printf '{PROMPT}'; end; function cubeshim; printf '<%s>' $argv; "
        "printf 'end%s\\n' ed; end; "
        f"source {script}")
    return ["fish", "--private", "--init-command", begin,
            "-i"], {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}


class Terminal:
    """A shell on its own terminal."""
    def __init__(self, words, env):
        self.child, self.master = pty.fork()  # with a controlling terminal, which shells need
        if self.child == 0:
            os.execvpe(words[0], words, dict(os.environ, TERM="vt100", COLUMNS="200", **env))
        self.unread = ""

    def read_until(self, pattern, patience=60):
        deadline = time.monotonic() + patience
        while not (found := re.search(pattern, self.unread)):
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{pattern} did not come: {self.unread!r}")
            self.unread += os.read(self.master, 65536).decode(errors="replace")
        self.unread = self.unread[found.end():]
        return found

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        os.kill(self.child, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.child, 0)


class Texts(Case):
    def help_of(self, *words):
        done = self.command(*words)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def commands(self):
        """The commands that --help lists."""
        listed = self.help_of("--help").split("train.py\n\n")[1].split("\n\n")[0]
        words = [re.split(r"  +|: ", line.strip())[0] for line in listed.splitlines()]
        return [name for row in words for name in row.split(", ")]

    def all_options(self, command):
        return re.findall(r"^  (?:-\w, |    )(--[\w-]+)", self.help_of(command, "--help-all"), re.M)


class Help(Texts):
    def test_it_fits_on_a_screen_of_80_columns(self):
        for command in ["", *self.commands()]:
            with self.subTest(command=command):
                lines = self.help_of(*command.split(), "--help").splitlines()
                self.assertLessEqual(len(lines), 24)
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertRegex("\n".join(lines), r"(?m)^  .*cubeshim ")  # an example
        longest = max(self.help_of("run", "--help-all").splitlines(), key=len)
        self.assertLessEqual(len(longest), 80, longest)

    def test_the_examples_use_options_that_exist(self):
        for command in self.commands():
            known = set(self.all_options(command))
            text = self.help_of(command, "--help").split("Examples:\n")[1].split("\n\n")[0]
            for example in re.findall(rf"cubeshim {command} (.*)", text):
                used = re.findall(r"(?<!\S)--[a-z-]+", example.split(" -- ")[0])
                self.assertLessEqual(set(used), known, example)

    def test_the_example_of_profile_reads_what_profile_writes(self):
        words = ["profile", "--all", "-p", self.data, "--name", self.name, "cat", self.file]
        self.assertEqual(self.command(*words, cwd=self.data.parent).returncode, 0)
        example, = re.findall(r"cubeshim (profile --read .*)", self.help_of("profile", "--help"))
        done = subprocess.run(f"{COMMAND} {example}", shell=True, cwd=self.data.parent,
                              capture_output=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_brief_help_explains_how_to_see_all_options(self):
        brief, full = self.help_of("run", "-h"), self.help_of("run", "--help-all")
        self.assertNotIn("--io-engine", brief)
        self.assertRegex(full, r"(?s)\nMemory:\n.*--ram .*\nPrefetching:\n.*--io-engine ")
        self.assertIn(f"all {len(self.all_options('run'))} options", brief)


    def test_option_is_followed_by_its_value(self):
        for command in self.commands():
            for line in self.help_of(command, "--help-all").splitlines():
                if line.startswith("  ") and "  --" in line:
                    self.assertNotRegex(line, r"\{|UINT|TEXT| in \[", command)

    def test_the_word_help_is_the_option(self):
        self.assertEqual(self.help_of("help"), self.help_of("--help"))
        self.assertEqual(self.help_of("help", "top"), self.help_of("top", "--help"))


class Documents(Texts):
    def named(self):
        return [line.split()[0] for line in self.help_of("docs").splitlines()]

    def test_each_of_the_list_is_printed(self):
        names = self.named()
        self.assertEqual(names[0], "readme")
        for name in names:
            self.assertRegex(self.help_of("docs", name), "^# ")
            self.assertNotIn("<!--", self.help_of("docs", name))
        self.assertEqual(self.help_of("docs", "doc/PREFETCH.md"), self.help_of("docs", "prefetch"))
        self.assertEqual(self.help_of("docs", "nanogpt"), self.help_of("docs", "recipes/nanogpt"))

    def test_each_that_a_message_names_is_there(self):
        known = {name.rsplit("/")[-1] for name in self.named()}
        root = Path(__file__).resolve().parents[2]
        found = set()
        for folder in ("cache", "prefetch", "shim"):
            for source in (root / folder).rglob("*.*"):
                if source.suffix in (".cc", ".h", ".def", ".py"):
                    text = source.read_text()
                    found |= set(re.findall(r"[(`]cubeshim docs (\w+)[)`]", text))
                    # The user of an installed package has no folder of this name.
                    self.assertNotRegex(text, r'(?m)^\s*".*\bdoc/\w+\.md', source)
        self.assertLess(3, len(found))
        self.assertLessEqual(found, known)


class Completion(Texts):
    def script(self, shell):
        done = self.command("completion", shell)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        file = self.data.parent / f"script.{shell}"
        file.write_bytes(done.stdout)
        return file

    def completed(self, shell, *lines):
        """Returns each of these lines as one Tab completes it."""
        words, env = shell_words(self.data.parent, shell, self.script(shell))
        terminal = Terminal(list(map(str, words)), env)
        self.addCleanup(terminal.close)
        results = []
        for line in lines:
            terminal.read_until(PROMPT)
            terminal.type(f"cubeshim {line}\t\r")
            # At the end of a line zsh removes the slash of a directory again.
            results.append([
                word.rstrip("/") for word in re.findall("<([^>]*)>",
                                                        terminal.read_until("(<[^>]*>)+ended")[0])
            ])
        return results

    def check_shell(self, shell):
        (self.data / "directory").mkdir()
        file, directory = f"{self.data}/f", f"{self.data}/directory"
        cases = {
            "docto": ["doctor"], "--vers": ["--version"], "run --mo": ["run", "--mode"],
            "run --mode re": ["run", "--mode", "real"], "stats --watc": ["stats", "--watch"],
            "doctor --log de": ["doctor", "--log", "debug"],
            "doctor -p " + directory[:-4]: ["doctor", "-p", directory],
            f"run --prefix {self.data} --name x cat {file[:-1]}f": [
                "run", "--prefix", str(self.data), "--name", "x", "cat", file
            ],
        }
        got = self.completed(shell, *cases)
        self.assertEqual(dict(zip(cases, got)), cases)

    def test_bash(self):
        self.check_shell("bash")

    def test_zsh(self):
        self.check_shell("zsh")

    def test_fish(self):
        self.check_shell("fish")

    def ask_bash(self, *words):
        """Returns everything that bash would offer for the last of these words."""
        line = " ".join(f"'{w}'" for w in ("cubeshim", *words))
        done = subprocess.run([
            "bash", "--norc", "-c", f"source {self.script('bash')}; COMP_WORDS=({line}); "
            f"COMP_CWORD={len(words)}; _cubeshim; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_all_that_the_help_names_is_offered(self):
        commands = self.commands()
        self.assertIn("completion", commands)
        self.assertEqual(sorted(self.ask_bash("")), sorted(commands))
        for command in commands:
            options = self.all_options(command)
            self.assertIn("--help", options)
            self.assertEqual(set(self.ask_bash(command, "--")), set(options), command)
            for shell in ("zsh", "fish"):
                text = self.script(shell).read_text()
                for option in options:
                    self.assertRegex(
                        text, rf"{option}\b"
                        if shell == "zsh" else rf"subcommand_from {command}'.* -l {option[2:]} ")

    def test_an_equals_sign_and_a_colon_are_words_of_their_own_to_bash(self):
        self.assertEqual(self.ask_bash("run", "--mode", "=", "v"), ["virtual"])
        self.assertEqual(self.ask_bash("run", "--mode", "="), ["virtual", "real", "off"])
        self.assertEqual(self.ask_bash("run", "--consistency", "t"), ["ttl:"])

    def test_arguments_of_the_program_are_not_completed_as_options(self):
        program = ["run", "-p", str(self.data), "--name=x", "--", "cat"]
        self.assertEqual(self.ask_bash(*program, "--mo"), [])
        self.assertEqual(self.ask_bash(*program, "--mode", "virt"), [])
        self.assertEqual(self.ask_bash(*program, f"{self.data}/"), [str(self.file)])
        self.assertIn("cat", self.ask_bash("run", "-p", str(self.data), "ca"))

    def test_unknown_shell_is_refused(self):
        done = self.command("completion", "csh")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"csh", done.stderr)


class Manual(Texts):
    def setUp(self):
        super().setUp()
        self.page = self.data / "cubeshim.1"
        done = self.command("man")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.page.write_bytes(done.stdout)

    def formatted(self):
        env = dict(os.environ, MANWIDTH="200", LC_ALL="C.UTF-8")
        done = subprocess.run(["man", "--warnings", "-l", self.page], capture_output=True,
                              text=True, env=env, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return re.sub(".\b", "", done.stdout)

    def test_the_formatters_find_nothing_wrong(self):
        self.formatted()
        checked = subprocess.run(["mandoc", "-T", "lint", self.page], capture_output=True,
                                 text=True, timeout=300)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_every_command_and_every_option_is_described(self):
        text = self.formatted()
        for command in self.commands():
            self.assertRegex(text, rf"(?m)^   cubeshim {command}\b")
            for option in self.all_options(command):
                self.assertRegex(text, rf"(?m)^       (-\w, )?{option}\b")
        for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "SETTINGS", "EXIT STATUS",
                      "FILES", "EXAMPLES"):
            self.assertRegex(text, rf"(?m)^{title}$")

    def test_hidden_commands_and_options_stay_hidden(self):
        for text in (self.formatted(), self.command("--help").stdout.decode()):
            self.assertNotRegex(text, r"(?m)^ *(cubeshim )?(man|read-hits)  ")


class Installed(Case):
    def test_the_texts_lie_where_shells_and_man_look(self):
        build = Path(COMMAND).parent
        made = build / "shim/cli/made"
        self.assertEqual(gzip.decompress((made / "cubeshim.1.gz").read_bytes()),
                         self.command("man").stdout)
        for name, words in (("cubeshim", ["completion",
                                          "bash"]), ("_cubeshim", ["completion", "zsh"]),
                            ("cubeshim.fish", ["completion", "fish"])):
            self.assertEqual((made / name).read_bytes(), self.command(*words).stdout)
        script = (build / "shim/cli/cmake_install.cmake").read_text()
        for place in ("share/man/man1", "share/bash-completion/completions",
                      "share/zsh/site-functions", "share/fish/vendor_completions.d"):
            self.assertIn(place, script)


if __name__ == "__main__":
    unittest.main()

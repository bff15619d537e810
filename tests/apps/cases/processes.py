# what: Python processes: open files over SCM_RIGHTS and multiprocessing, Pool, pass_fds,
#   stdin=file, close_fds both ways, fork, exec, posix_spawn, send_handle
# version: /usr/bin/python3 --version
# run
import array, multiprocessing, multiprocessing.reduction, os, signal, socket, subprocess
import sys, tempfile, threading, zlib

data, out = os.environ["DATA"] + "/", os.environ["OUT"] + "/"
crc = lambda b: (len(b), zlib.crc32(b))


def from_name(name):
    with open(data + name, "rb") as f:
        return name, crc(f.read())


def from_handle(connection):
    fd = multiprocessing.reduction.recv_handle(connection)
    with os.fdopen(fd, "rb") as f:
        connection.send((f.tell(), crc(f.read())))


def main():
    names = sorted(n for n in os.listdir(data + "binary"))
    for kind in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(kind)
        with context.Pool(2) as pool:
            print(kind, pool.map(from_name, ["binary/" + n for n in names]), flush=True)
        ours, theirs = context.Pipe()
        process = context.Process(target=from_handle, args=(theirs,))
        process.start()
        with open(data + "binary/65536", "rb", buffering=0) as f:
            f.read(1000)
            multiprocessing.reduction.send_handle(ours, f.fileno(), process.pid)
            print(ours.recv(), f.tell())
        process.join()
        print(process.exitcode, flush=True)
    a, b = socket.socketpair()
    with open(data + "text/words", "rb", buffering=0) as f, open(data + "text/one", "rb") as g:
        f.seek(500)
        socket.send_fds(a, [b"x"], [f.fileno(), g.fileno(), f.fileno()])
        _, fds, _, _ = socket.recv_fds(b, 10, 5)
        print(os.read(fds[0], 20), os.read(fds[2], 20), f.read(5), os.read(fds[1], 100),
              os.fstat(fds[0]).st_size)
        pid = os.fork()
        if pid == 0:
            os.read(f.fileno(), 100)
            os._exit(0)
        os.waitpid(pid, 0)
        print(f.tell(), os.lseek(fds[0], 0, os.SEEK_CUR))
    for close_fds in (False, True):
        with open(data + "text/numbers", "rb", buffering=0) as f:
            f.read(10)
            print(
                subprocess.run(["head", "-c", "9"], stdin=f, stdout=subprocess.PIPE,
                               close_fds=close_fds).stdout, f.tell())
            print(
                subprocess.run(["cat"], stdin=f, stdout=subprocess.PIPE, close_fds=close_fds,
                               preexec_fn=os.getpid).stdout[:10], f.tell())
    with open(data + "text/numbers", "rb", buffering=0) as f:
        f.read(7)
        code = ("import os, sys; fd = int(sys.argv[1]); print(os.read(fd, 5), os.lseek(fd, 0, "
                "1), os.fstat(fd).st_size, os.readlink(f'/proc/self/fd/{fd}')[-12:])")
        print(
            subprocess.run([sys.executable, "-c", code, str(f.fileno())], pass_fds=[f.fileno()],
                           stdout=subprocess.PIPE).stdout, f.tell())
        print(
            subprocess.run([sys.executable, "-c", code, str(f.fileno())],
                           capture_output=True).returncode, f.tell())
        os.set_inheritable(f.fileno(), True)
        print(
            subprocess.run([sys.executable, "-c", code, str(f.fileno())], stdout=subprocess.PIPE,
                           close_fds=False).stdout, f.tell())
        pid = os.posix_spawn(
            "/bin/head", ["head", "-c", "10"], os.environ, file_actions=[
                (os.POSIX_SPAWN_DUP2, f.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, out + "spawned", os.O_CREAT | os.O_WRONLY, 0o644)
            ])
        print(os.waitpid(pid, 0)[1], open(out + "spawned").read(), f.tell())
        pid = os.posix_spawn(
            "/bin/cat", ["cat"], os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, data + "text/one", os.O_RDONLY, 0)])
        print(
            os.waitpid(pid, 0)[1], os.system("cat < " + data + "text/one"),
            os.popen("cat " + data + "text/one").read())
    pid = os.fork()
    if pid == 0:
        fd = os.open(data + "text/one", os.O_RDONLY)
        os.dup2(fd, 0)
        os.execvp("cat", ["cat"])
    os.waitpid(pid, 0)
    shell = subprocess.Popen("read a; echo $a; cat", shell=True,
                             stdin=open(data + "text/no_newline"), stdout=subprocess.PIPE)
    print(shell.communicate())
    wrong = []

    def reader(seed):
        for n in range(60):
            name = names[(seed + n) % len(names)]
            with open(data + "binary/" + name, "rb") as f:
                if len(f.read()) != os.stat(data + "binary/" + name).st_size:
                    wrong.append(name)

    threads = [threading.Thread(target=reader, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for n in range(15):
        assert subprocess.run(["cat", data + "binary/511"],
                              stdout=subprocess.PIPE).stdout == open(data + "binary/511",
                                                                     "rb").read()
    for thread in threads:
        thread.join()
    print("with threads", wrong)
    killed = subprocess.Popen([
        sys.executable, "-c",
        f"f = open({data + 'text/one'!r}); print(f.read(), flush=True); import time; "
        "time.sleep(600)"
    ], stdout=subprocess.PIPE)
    print(killed.stdout.readline())
    killed.kill()
    print(killed.wait(), open(data + "text/one").read())
    with tempfile.NamedTemporaryFile(dir=data) as f:
        f.write(open(data + "text/words", "rb").read())
        f.flush()
        print(crc(open(f.name, "rb").read()),
              subprocess.run(["wc", "-c"], stdin=open(f.name), stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()

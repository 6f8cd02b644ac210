"""The script that runs one command as the parent of all its descendants, and ends every one of them.

On Linux it is a child subreaper: a descendant whose parent died becomes its child, so "no child left" means
"no descendant left", and the pid of a child stays taken until it is reaped here. Elsewhere it ends the
command's process group. It is one file and imports little, because every command waits for it to start.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums: 5 ms at every start
import ctypes
import marshal
import os
import resource
import select
import sys
import time

Order = tuple[list[bytes], list[tuple[bytes, bytes]], bytes | None, float, int]  # as `command` packs it
WHOLE_TREE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # Linux, with /proc
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OPEN_FILES = 4096
UNASKED_GRACE = 1.0  # seconds from TERM to KILL when the command has exited or the engine has died
OUR_CHILD = -1  # instead of a handle: only we reap it, so its pid cannot become another process's
DEFAULT_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGTERM", "SIGCHLD", "SIGXFSZ")


def main() -> None:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    order = read_order(control)
    if order is None or readable(control):  # the engine has died or has changed its mind
        return
    argv, env, cwd, grace, engine = order
    wake = watch_signals()
    report(control, b"starting")
    try:
        limit_resources()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        child, problem = start(argv, dict(env), cwd)
    except OSError as error:
        child, problem = 0, failure(error, b"command")
    if problem:
        report(control, problem)
        return
    leave_stdio()
    report(control, b"started %d" % child)
    code = Watch(child, control, wake, engine).until_gone(grace)
    report(control, b"ended %d" % code)


def read_order(control: int) -> Order | None:
    size = read_exactly(control, 8)
    data = size and read_exactly(control, int.from_bytes(size, "big"))
    if not data:
        return None
    order: Order = marshal.loads(data)
    return order


def read_exactly(control: int, size: int) -> bytes | None:
    """So many bytes and no more, because the wish to end may follow; None when the engine is gone."""
    data = b""
    while len(data) < size:
        more = os.read(control, size - len(data))
        if not more:
            return None
        data += more
    return data


def readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def report(control: int, line: bytes) -> None:
    try:
        os.write(control, line + b"\n")
    except OSError:
        pass  # the engine has died: nobody asks


def prctl(option: int, value: int) -> None:
    if WHOLE_TREE and ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(1, "prctl failed")


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def watch_signals() -> int:
    """A pipe on which every signal that matters here arrives as a byte."""
    wake, sink = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return wake


def start(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes | None) -> tuple[int, bytes]:
    """Fork and exec; the pid, or what went wrong in the child."""
    trouble, told = os.pipe()
    child = os.fork()
    if child == 0:
        where = b"command"
        try:
            leave_shim()
            if cwd is not None:
                where = b"directory"
                os.chdir(cwd)
            where = b"command"
            os.execvpe(argv[0], argv, env)
        except BaseException as error:
            os.write(told, failure(error, where))
        finally:
            os._exit(127)
    os.close(told)
    problem = os.read(trouble, 4096)
    os.close(trouble)
    if problem:
        os.waitpid(child, 0)
    return child, problem


def failure(error: BaseException, where: bytes) -> bytes:
    return b"failed %d %s" % (getattr(error, "errno", None) or 22, where)


def leave_shim() -> None:
    """In the child: a session of its own, signals as they come by default, no life without the shim."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def leave_stdio() -> None:
    """Let go of the command's pipes, so that they close with the last process that uses them."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


class Watch:
    """The command and its descendants, from the start until none is left."""

    def __init__(self, child: int, control: int, wake: int, engine: int) -> None:
        self.child, self.control, self.wake = child, control, wake
        self.code: int | None = None
        self.asked: set[int] = set()
        self.deadline: float | None = None  # when KILL follows TERM
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)
        self.poll.register(wake, select.POLLIN)
        self.watch_engine(engine)

    def watch_engine(self, engine: int) -> None:
        """See the engine's death even while a fork of it holds the control socket open."""
        if not WHOLE_TREE:
            return
        try:
            self.poll.register(os.pidfd_open(engine), select.POLLIN)
        except OSError:
            pass  # a kernel before 5.3: the control socket has to do
        if os.getppid() != engine:
            self.end(UNASKED_GRACE)

    def until_gone(self, grace: float) -> int:
        pause = 0.01
        while self.reap():
            if self.deadline is None:
                timeout = None
            elif (left := self.deadline - time.monotonic()) > 0:
                self.ask(children(os.getpid()))
                timeout = left * 1000 + 1
            else:
                signal_tree(self.child, signal.SIGKILL)
                timeout, pause = pause * 1000, min(pause * 2, 0.5)
            for fd, _ in self.poll.poll(timeout):
                self.heed(fd, grace)
        return self.code if self.code is not None else -int(signal.SIGKILL)

    def reap(self) -> bool:
        """Collect the dead; whether anything is left alive."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if found[0] == self.child:
                    self.code = os.waitstatus_to_exitcode(found[1])
                    self.end(UNASKED_GRACE)
        except ChildProcessError:
            return not WHOLE_TREE and group_alive(self.child)
        return True

    def heed(self, fd: int, grace: float) -> None:
        if fd == self.wake:
            if os.read(fd, 4096).strip(bytes([signal.SIGCHLD])):
                self.end(UNASKED_GRACE)
        elif fd == self.control and asked_to_end(fd):
            self.end(grace)
        else:
            self.poll.unregister(fd)
            self.end(UNASKED_GRACE)

    def end(self, grace: float) -> None:
        """Ask everything to stop, and set the time after which it is not asked any more."""
        deadline = time.monotonic() + grace
        if self.deadline is None:
            self.asked.update(signal_tree(self.child, signal.SIGTERM, signal.SIGCONT))
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def ask(self, adopted: list[int]) -> None:
        """Ask the orphans that were born too late to be asked with the others; nobody waits for them."""
        for pid in adopted:
            if pid not in self.asked:
                self.asked.add(pid)
                send(pid, OUR_CHILD, signal.SIGTERM)
                send(pid, OUR_CHILD, signal.SIGCONT)


def asked_to_end(control: int) -> bool:
    try:
        return bool(os.read(control, 1))
    except OSError:
        return False


def signal_tree(child: int, *numbers: int) -> list[int]:
    """Signal the whole tree as it is at this moment; the pids of it."""
    tree = open_tree() if WHOLE_TREE else {}
    for number in numbers:
        for pid, handle in tree.items():
            send(pid, handle, number)
        if not WHOLE_TREE:
            send(-child, OUR_CHILD, number)
    for handle in tree.values():
        if handle != OUR_CHILD:
            os.close(handle)
    return list(tree)


def send(pid: int, handle: int, number: int) -> None:
    try:
        if handle == OUR_CHILD:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended, or belongs to another user


def open_tree() -> dict[int, int]:
    """Every descendant, with a handle that stays true when its pid is taken by another process.

    All are found before one is signalled, because a parent that dies hides its children for a moment.
    """
    ourselves = os.getpid()
    tree = dict.fromkeys(children(ourselves), OUR_CHILD)
    pending = list(tree)
    for parent in pending:
        for pid in children(parent):
            if pid not in tree and (handle := open_child(pid, parent, tree[parent])) is not None:
                tree[pid] = handle
                pending.append(pid)
    return tree


def open_child(pid: int, parent: int, parent_handle: int) -> int | None:
    """A handle on the process if it is what it was when its parent was asked for its children."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None  # it has ended, or the kernel is before 5.3: it is signalled when it becomes our child
    in_tree = parent_of(pid) in (parent, os.getpid())
    if in_tree and (parent_handle == OUR_CHILD or not readable(parent_handle)):
        return handle
    os.close(handle)
    return None


def children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has just ended, and its children are ours
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def parent_of(pid: int) -> int:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def group_alive(child: int) -> bool:
    try:
        os.killpg(child, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
    os._exit(0)

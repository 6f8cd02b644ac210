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
HAS_SUBREAPER = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # Linux, with /proc
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MAX_OPEN_FILES = 4096
UNREQUESTED_GRACE_S = 1.0  # seconds from TERM to KILL when the command has exited or the engine has died
OWN_CHILD = -1  # instead of a handle: only we reap it, so its pid cannot become another process's
DEFAULT_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGTERM", "SIGCHLD", "SIGXFSZ")


def main() -> None:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    order = read_order(control)
    if order is None or is_readable(control):  # the engine has died or has changed its mind
        return
    argv, env, cwd, grace, engine = order
    wake = watch_signals()
    send_report(control, b"starting")
    try:
        limit_resources()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        child, problem = fork_and_exec(argv, dict(env), cwd)
    except OSError as error:
        child, problem = 0, failure_report(error, b"command")
    if problem:
        send_report(control, problem)
        return
    release_stdio()
    send_report(control, b"started %d" % child)
    code = TreeSupervisor(child, control, wake, engine).run_until_gone(grace)
    send_report(control, b"ended %d" % code)


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


def is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def send_report(control: int, line: bytes) -> None:
    try:
        os.write(control, line + b"\n")
    except OSError:
        pass  # the engine has died: nobody asks


def prctl(option: int, value: int) -> None:
    if HAS_SUBREAPER and ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(1, "prctl failed")


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
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


def fork_and_exec(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes | None) -> tuple[int, bytes]:
    """Fork and exec; the pid, or what went wrong in the child."""
    error_reader, error_writer = os.pipe()
    child = os.fork()
    if child == 0:
        culprit = b"command"
        try:
            detach_from_supervisor()
            if cwd is not None:
                culprit = b"directory"
                os.chdir(cwd)
            culprit = b"command"
            os.execvpe(argv[0], argv, env)
        except BaseException as error:
            os.write(error_writer, failure_report(error, culprit))
        finally:
            os._exit(127)
    os.close(error_writer)
    problem = os.read(error_reader, 4096)
    os.close(error_reader)
    if problem:
        os.waitpid(child, 0)
    return child, problem


def failure_report(error: BaseException, culprit: bytes) -> bytes:
    return b"failed %d %s" % (getattr(error, "errno", None) or 22, culprit)


def detach_from_supervisor() -> None:
    """In the child: a session of its own, signals as they come by default, no life without the shim."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def release_stdio() -> None:
    """Let go of the command's pipes, so that they close with the last process that uses them."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


class TreeSupervisor:
    """The command and its descendants, from the start until none is left."""

    def __init__(self, child: int, control_fd: int, wake_fd: int, engine: int) -> None:
        self.child, self.control_fd, self.wake_fd = child, control_fd, wake_fd
        self.exit_code: int | None = None
        self.terminated_pids: set[int] = set()
        self.deadline: float | None = None  # when KILL follows TERM
        self.poll = select.poll()
        self.poll.register(control_fd, select.POLLIN)
        self.poll.register(wake_fd, select.POLLIN)
        self.watch_engine(engine)

    def watch_engine(self, engine: int) -> None:
        """See the engine's death even while a fork of it holds the control socket open."""
        if not HAS_SUBREAPER:
            return
        try:
            self.poll.register(os.pidfd_open(engine), select.POLLIN)
        except OSError:
            pass  # a kernel before 5.3: the control socket has to do
        if os.getppid() != engine:
            self.terminate(UNREQUESTED_GRACE_S)

    def run_until_gone(self, grace: float) -> int:
        pause = 0.01
        while self.reap():
            if self.deadline is None:
                timeout = None
            elif (remaining := self.deadline - time.monotonic()) > 0:
                self.terminate_orphans(child_pids(os.getpid()))
                timeout = remaining * 1000 + 1
            else:
                signal_tree(self.child, signal.SIGKILL)
                timeout, pause = pause * 1000, min(pause * 2, 0.5)
            for fd, _ in self.poll.poll(timeout):
                self.handle_event(fd, grace)
        return self.exit_code if self.exit_code is not None else -int(signal.SIGKILL)

    def reap(self) -> bool:
        """Collect the dead; whether anything is left alive."""
        try:
            while (status := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if status[0] == self.child:
                    self.exit_code = os.waitstatus_to_exitcode(status[1])
                    self.terminate(UNREQUESTED_GRACE_S)
        except ChildProcessError:
            return not HAS_SUBREAPER and is_group_alive(self.child)
        return True

    def handle_event(self, fd: int, grace: float) -> None:
        if fd == self.wake_fd:
            if os.read(fd, 4096).strip(bytes([signal.SIGCHLD])):
                self.terminate(UNREQUESTED_GRACE_S)
        elif fd == self.control_fd and is_end_requested(fd):
            self.terminate(grace)
        else:
            self.poll.unregister(fd)
            self.terminate(UNREQUESTED_GRACE_S)

    def terminate(self, grace: float) -> None:
        """Ask everything to stop, and set the time after which it is not asked any more."""
        deadline = time.monotonic() + grace
        if self.deadline is None:
            self.terminated_pids.update(signal_tree(self.child, signal.SIGTERM, signal.SIGCONT))
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def terminate_orphans(self, orphans: list[int]) -> None:
        """Ask the orphans that were born too late to be asked with the others; nobody waits for them."""
        for pid in orphans:
            if pid not in self.terminated_pids:
                self.terminated_pids.add(pid)
                send_signal(pid, OWN_CHILD, signal.SIGTERM)
                send_signal(pid, OWN_CHILD, signal.SIGCONT)


def is_end_requested(control: int) -> bool:
    try:
        return bool(os.read(control, 1))
    except OSError:
        return False


def signal_tree(child: int, *numbers: int) -> list[int]:
    """Signal the whole tree as it is at this moment; the pids of it."""
    tree = open_tree_handles() if HAS_SUBREAPER else {}
    for number in numbers:
        for pid, handle in tree.items():
            send_signal(pid, handle, number)
        if not HAS_SUBREAPER:
            send_signal(-child, OWN_CHILD, number)
    for handle in tree.values():
        if handle != OWN_CHILD:
            os.close(handle)
    return list(tree)


def send_signal(pid: int, handle: int, number: int) -> None:
    try:
        if handle == OWN_CHILD:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended, or belongs to another user


def open_tree_handles() -> dict[int, int]:
    """Every descendant, with a handle that stays true when its pid is taken by another process.

    All are found before one is signalled, because a parent that dies hides its children for a moment.
    """
    own_pid = os.getpid()
    tree = dict.fromkeys(child_pids(own_pid), OWN_CHILD)
    pending = list(tree)
    for parent in pending:
        for pid in child_pids(parent):
            if pid not in tree and (handle := open_child_handle(pid, parent, tree[parent])) is not None:
                tree[pid] = handle
                pending.append(pid)
    return tree


def open_child_handle(pid: int, parent: int, parent_handle: int) -> int | None:
    """A handle on the process if it is what it was when its parent was asked for its children."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None  # it has ended, or the kernel is before 5.3: it is signalled when it becomes our child
    in_tree = parent_pid(pid) in (parent, os.getpid())
    if in_tree and (parent_handle == OWN_CHILD or not is_readable(parent_handle)):
        return handle
    os.close(handle)
    return None


def child_pids(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has just ended, and its children are ours
    return [
        int(child)
        for thread in threads
        for child in read_file_or_empty(f"/proc/{pid}/task/{thread}/children").split()
    ]


def parent_pid(pid: int) -> int:
    fields = read_file_or_empty(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def read_file_or_empty(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_group_alive(child: int) -> bool:
    try:
        os.killpg(child, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
    os._exit(0)

"""The supervisor script: run one command as the parent of all its descendants, and end all of them.

On Linux it is a child subreaper: a descendant whose parent died becomes its child, so "no child left" means
"no descendant left", and the pid of a child stays in use until the script reaps it. Elsewhere it ends the
process group of the command. It is one file with few imports, because every command waits for its start.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums: 5 ms at every start
import ctypes
import marshal
import os
import resource
import select
import sys
import time

Order = tuple[
    list[bytes], list[tuple[bytes, bytes]], bytes | None, float, int
]  # as supervised_process encodes it
HAS_SUBREAPER = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # Linux, with /proc
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MAX_OPEN_FILES = 4096
UNREQUESTED_GRACE_S = 1.0  # from TERM to KILL when the command has exited or the engine has died
OWN_CHILD = -1  # instead of a handle: only this process reaps it, so its pid cannot be reused
DEFAULT_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGTERM", "SIGCHLD", "SIGXFSZ")


def main() -> None:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    order = read_order(control)
    if order is None or is_readable(control):  # the engine has died or has cancelled the order
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
    """Read exactly `size` bytes, because a request to end may follow; None if the engine is gone."""
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
        pass  # the engine has died and does not need the report


def prctl(option: int, value: int) -> None:
    if HAS_SUBREAPER and ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(1, "prctl failed")


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def watch_signals() -> int:
    """Return a pipe on which each relevant signal arrives as a byte."""
    wake, sink = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return wake


def fork_and_exec(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes | None) -> tuple[int, bytes]:
    """Fork and exec; return the pid and the failure report of the child, if any."""
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
    """In the child: start a session, restore default signals, and die together with the shim."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for name in DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def release_stdio() -> None:
    """Release the pipes of the command, so that they close with the last process that uses them."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


class TreeSupervisor:
    """Supervises the command and its descendants until none is left."""

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
        """Detect the death of the engine even if a fork of it holds the control socket open."""
        if not HAS_SUBREAPER:
            return
        try:
            self.poll.register(os.pidfd_open(engine), select.POLLIN)
        except OSError:
            pass  # a kernel before 5.3: the control socket must suffice
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
        """Reap ended children; return whether a process is left."""
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
        """Send TERM to the tree, and set the deadline for KILL."""
        deadline = time.monotonic() + grace
        if self.deadline is None:
            self.terminated_pids.update(signal_tree(self.child, signal.SIGTERM, signal.SIGCONT))
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def terminate_orphans(self, orphans: list[int]) -> None:
        """Send TERM to orphans that started after the tree was signalled, without extending the deadline."""
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
    """Signal the whole current tree; return its pids."""
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
    """Return every descendant with a handle that stays valid if its pid is reused.

    All are collected before the first signal, because the children of a dying parent are briefly invisible.
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
    """Return a handle on a process if it still belongs to the tree, else None."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None  # it has ended, or the kernel is before 5.3: it gets the signal when it becomes a child
    in_tree = parent_pid(pid) in (parent, os.getpid())
    if in_tree and (parent_handle == OWN_CHILD or not is_readable(parent_handle)):
        return handle
    os.close(handle)
    return None


def child_pids(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has just ended, and its children belong to this process
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

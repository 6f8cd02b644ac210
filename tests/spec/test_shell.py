"""Commands with values: a value arrives byte for byte, or its position is refused; it is never run."""

import os
import random
import subprocess
import time
from types import SimpleNamespace

import pytest

from nerve.expr import ExprError
from nerve.spec.shell import VALUE_LIMIT, UnsafeCommand, compile_command

V = "{{ v }}"


def plain(value):
    return value


def line(value):
    return value + "\n"


def trimmed(value):
    return value.rstrip("\n")


POSITIONS = [
    ("printf %s {{ v }}", plain),
    ('printf %s "{{ v }}"', plain),
    ("printf %s a{{ v }}b", lambda value: f"a{value}b"),
    ('printf %s "a {{ v }} b"', lambda value: f"a {value} b"),
    ("printf %s --flag={{ v }}", lambda value: f"--flag={value}"),
    ("printf %s {{ v }}{{ v }}", lambda value: value * 2),
    ("printf %s 'it'\"'\"'s '{{ v }}", lambda value: f"it's {value}"),
    ("printf %s \\\"{{ v }}\\'", lambda value: f"\"{value}'"),
    ('printf %s "\\"{{ v }}\\$"', lambda value: f'"{value}$'),
    ("printf %s $'\\''{{ v }}", lambda value: f"'{value}"),
    ('printf %s "${NOTHING-}"{{ v }}"${NOTHING:-"}"}"', lambda value: f"{value}}}"),
    ("printf %s \\\n  {{ v }} # a comment with ' and \" and $(", plain),
    ("printf %s ~{{ v }}*", lambda value: f"~{value}*"),
    ("# don't\nprintf %s {{ v }}", plain),
    ("true && printf %s {{ v }} || true; true & wait", plain),
    ("! printf %s {{ v }}", plain),
    ("printf %s {{ v }} 2>/dev/null >&1", plain),
    ("x={{ v }}; printf %s \"$x\"", plain),
    ('x="{{ v }}"; printf %s "$x"', plain),
    ("x=a; x+={{ v }}; printf %s \"$x\"", lambda value: f"a{value}"),
    ("export x={{ v }}; printf %s \"$x\"", plain),
    ("printf -v x %s {{ v }}; printf -- %s \"$x\"", plain),
    ("f() { local x={{ v }}; printf %s \"$x\"; }; f", plain),
    ("declare -a a=({{ v }} b); printf %s \"${a[0]}\"", plain),
    ("a=(x\n {{ v }} # here's one\n [5]={{ v }}); printf %s \"${a[1]}${a[5]}\"", lambda value: value * 2),
    ("a[3]={{ v }}; printf %s \"${a[3]}\"", plain),
    ("[[ {{ v }} == {{ v }} && {{ v }} =~ {{ v }} ]] && printf %s {{ v }}", plain),
    ("[[ (-n x{{ v }}) && ! {{ v }} == x{{ v }} ]] && printf %s {{ v }}", plain),
    ("if [[ -n x{{ v }} ]]; then ([[ a < b ]]) && printf %s {{ v }}; fi", plain),
    ("[ {{ v }} = {{ v }} ] && printf %s {{ v }}", plain),
    ("case {{ v }} in {{ v }}) printf %s {{ v }} ;; *) printf BAD ;; esac", plain),
    ("case x{{ v }} in (a | x\"{{ v }}\") case a in b) ;; esac; printf %s {{ v }} ;& esac", plain),
    ("for x in {{ v }}; do printf %s \"$x\"; done", plain),
    ("for ((i = 0; i < 2; i++)); do printf %s {{ v }}; done", lambda value: value * 2),
    ("f() { printf %s \"$1\"; }; f {{ v }}", plain),
    ("function g { printf %s \"$1\"; }; g {{ v }}", plain),
    ("{ printf %s {{ v }}; }", plain),
    ("if true; then printf %s {{ v }}; else false; fi", plain),
    ("set -- {{ v }} && printf %s \"$*\"", plain),
    ("echo $((1 + (2))) $[3] >/dev/null; printf %s {{ v }}", plain),
    ("echo `echo \"a'\"` \"`echo \\\"`\" >/dev/null; printf %s {{ v }}", plain),
    ("IFS= read -r -d '' x <<< {{ v }}; printf %s \"${x}\"", line),
    ("(printf %s {{ v }})", plain),
    ("printf %s \"$(printf %s {{ v }})\"", trimmed),
    ("printf %s \"$(printf %s \"{{ v }}\" \"$( (true) )\")\"", trimmed),
    ("printf %s {{ v }} | cat", plain),
    ("cat <(printf %s {{ v }})", plain),
    ("cat <<< {{ v }}", line),
    ("cat <<EOF\n{{ v }}\nEOF", line),
    ("cat <<-EOF\n\t\t{{ v }}\"'\\$`echo`\n\tEOF\n", lambda value: f"{value}\"'$\n"),
    (
        "cat - /dev/fd/3 <<A 3<<'B'\n{{ v }}$(printf %s \"{{ v }}\")\nA\nit's\nB\n",
        lambda value: f"{value}{trimmed(value)}\nit's\n",
    ),
    ("printf %s \"$(cat <<EOF\n'{{ v }}'\nEOF\n)\"", lambda value: f"'{value}'"),
    ("x={{ v }} printenv x", line),
    ("export x={{ v }}; bash -c 'printf %s \"$x\"'", plain),
    ("x={{ v }} awk 'BEGIN { printf \"%s\", ENVIRON[\"x\"] }'", plain),
]  # fmt: skip

REFUSED = [
    ("printf %s '{{ v }}'", "single quotes"),
    ("printf %s a'b {{ v }}'", "single quotes"),
    ("printf %s $'{{ v }}'", "single quotes"),
    ("printf %s $'\\'{{ v }}'", "single quotes"),
    ("printf %s $\"{{ v }}\"", "message"),
    ("cat <<'EOF'\n{{ v }}\nEOF", "quoted here-document"),
    ("cat <<\\EOF\n{{ v }}\nEOF", "quoted here-document"),
    ("cat <<E\"O\"F\n{{ v }}\nEOF", "quoted here-document"),
    ("cat <<{{ v }}\nx\nEOF", "cannot end a here-document"),
    ("true # {{ v }}", "comment"),
    ("# {{ v }}", "comment"),
    ("eval {{ v }}", "`eval` takes its words for code"),
    ("eval \"echo {{ v }}\"", "`eval`"),
    ("\\eval {{ v }}", "`eval`"),
    ("command eval {{ v }}", "`eval`"),
    ("x=1 builtin eval {{ v }}", "`eval`"),
    ("eval \"$(printf %s {{ v }})\"", "`eval`"),
    ("true; if eval {{ v }}; then true; fi", "`eval`"),
    ("for x do eval {{ v }}; done", "`eval`"),
    ("case a in a) eval {{ v }};; esac", "`eval`"),
    ("trap {{ v }} EXIT", "`trap`"),
    ("let x={{ v }}", "`let`"),
    (". {{ v }}", "`.`"),
    ("source <(echo {{ v }})", "`source`"),
    ("ssh host cat {{ v }}", "`ssh`"),
    ("bash -c {{ v }}", "another shell"),
    ("bash -c \"echo {{ v }}\"", "another shell"),
    ("sh -ec \"echo {{ v }}\"", "another shell"),
    ("/bin/sh -c 'echo \"$1\"' sh {{ v }}", "another shell"),
    ("env -i bash -lc {{ v }}", "another shell"),
    ("find . -exec sh -c \"{{ v }}\" \\;", "another shell"),
    ("\"$SHELL\" -c {{ v }}", "another shell"),
    ("bash <<EOF\necho {{ v }}\nEOF", "run as code"),
    ("bash <<< {{ v }}", "run as code"),
    ("bash -s <<EOF\necho {{ v }}\nEOF", "run as code"),
    ("{ bash; } <<EOF\necho {{ v }}\nEOF", "run as code"),
    ("(sh) <<< {{ v }}", "run as code"),
    ("python3 - <<EOF\nprint('{{ v }}')\nEOF", "run as code"),
    ("echo {{ v }} | bash", "run as code"),
    ("echo {{ v }} | sudo sh", "run as code"),
    ("echo {{ v }} | tee x | bash", "run as code"),
    ("echo {{ v }} | (bash)", "run as code"),
    ("echo {{ v }} | { bash; }", "run as code"),
    ("echo {{ v }} | while true; do bash; done", "run as code"),
    ("(echo {{ v }}) | bash", "run as code"),
    ("{ echo {{ v }}; true; } | bash", "run as code"),
    ("for x in {{ v }}; do echo $x; done | bash", "run as code"),
    ("cat <<EOF | bash\n{{ v }}\nEOF", "run as code"),
    ("cat <<EOF |\n{{ v }}\nEOF\nbash", "run as code"),
    ("python3 -c \"print('{{ v }}')\"", "`python3` takes this word for code"),
    ("perl -pe \"s/a/{{ v }}/\" file", "`perl`"),
    ("node --eval \"{{ v }}\"", "`node`"),
    ("awk \"/{{ v }}/\" file", "`awk`"),
    ("sed -i \"s/a/{{ v }}/\" file", "`sed`"),
    ("sed -e {{ v }} file", "`sed`"),
    ("echo ${x:-{{ v }}}", "inside ${…}"),
    ("echo \"${x:-{{ v }}}\"", "inside ${…}"),
    ("echo ${x:-$(echo {{ v }})}", "inside ${…}"),
    ("echo \"${x[{{ v }}]}\"", "inside ${…}"),
    ("echo ${{ v }}", "a `$` stands before"),
    ("echo \"${{ v }}\"", "a `$` stands before"),
    ("echo $(( {{ v }} + 1 ))", "arithmetic"),
    ("echo \"$(( $(echo {{ v }}) ))\"", "arithmetic"),
    ("echo $[{{ v }}]", "arithmetic"),
    ("(( {{ v }} ))", "arithmetic"),
    ("for ((i = {{ v }}; ; )); do break; done", "arithmetic"),
    ("[[ {{ v }} -eq 1 ]]", "evaluates"),
    ("[[ 1 -lt \"{{ v }}\" ]]", "evaluates"),
    ("[[ -v {{ v }} ]]", "evaluates"),
    ("if [[ a && {{ v }} -ge 0 ]]; then true; fi", "evaluates"),
    ("if [[ a ]]; then eval {{ v }}; fi", "`eval`"),
    ("test -v {{ v }}", "name of a variable"),
    ("[ -v {{ v }} ]", "name of a variable"),
    ("printf -v {{ v }} x", "`printf`"),
    ("printf -v{{ v }} x", "`printf`"),
    ("printf -v x {{ v }}", "`printf`"),
    ("printf {{ v }}", "`printf`"),
    ("printf -- \"{{ v }}\"", "`printf`"),
    ("[ {{ v }} {{ v }} ]", "name of a variable"),
    ("read {{ v }}", "name of a variable"),
    ("unset {{ v }}", "name of a variable"),
    ("a[{{ v }}]=1", "name of a program"),
    ("a=([{{ v }}]=1)", "index"),
    ("declare -i n={{ v }}", "`declare` evaluates"),
    ("declare -n n={{ v }}", "`declare` evaluates"),
    ("declare {{ v }}=1", "`declare` evaluates"),
    ("export \"{{ v }}\"", "`export` evaluates"),
    ("declare -i n; n={{ v }}", "integer"),
    ("n={{ v }}; f() { local -ri n; }", "integer"),
    ("SECONDS={{ v }}", "evaluates the value"),
    ("PS4={{ v }}; set -x", "evaluates the value"),
    ("{{ v }} arg", "name of a program"),
    ("\"{{ v }}\"", "name of a program"),
    ("./bin/{{ v }}", "name of a program"),
    ("x=1 {{ v }}", "name of a program"),
    ("2>/dev/null {{ v }}", "name of a program"),
    ("sudo {{ v }}", "name of a program"),
    ("true | {{ v }}", "name of a program"),
    ("$(echo {{ v }})", "name of a program"),
    ("f() { {{ v }}; }", "name of a program"),
    ("while {{ v }}; do true; done", "name of a program"),
    ("case a in a) {{ v }};; esac", "name of a program"),
    ("for {{ v }} in a; do true; done", "name a variable"),
    ("echo `echo {{ v }}`", "backticks"),
    ("echo \"`echo {{ v }}`\"", "backticks"),
    ("echo {{ v }} '", "cannot be followed"),
    ("echo {{ v }} \"", "cannot be followed"),
    ("echo {{ v }} $(", "cannot be followed"),
    ("echo {{ v }} )", "cannot be followed"),
    ("echo {{ v }} ${x", "cannot be followed"),
    ("cat <<EOF\n{{ v }}\n", "cannot be followed"),
    ("cat <<EOF\nx\\\nEOF\n{{ v }}\n", "cannot be followed"),
    ("case a in {{ v }}", "cannot be followed"),
    ("[[ {{ v }}", "cannot be followed"),
    ("echo @({{ v }})", "cannot be followed"),
    ("$(" * 200 + V + ")" * 200, "cannot be followed"),
]  # fmt: skip

PAYLOADS = [
    "$(touch canary)", "`touch canary`", "${x:=$(touch canary)}", "; touch canary;", "| touch canary",
    "& touch canary", "\ntouch canary\n", "' ; touch canary ; '", '" ; touch canary ; "',
    "'\"'; touch canary #", "\\'; touch canary #", "a[$(touch canary)]", "x[$(touch canary)0]=1",
    "1+a[$(touch canary)]", "-va[$(touch canary)]", "-pa[$(touch canary)]", "))$(touch canary)((",
    "EOF\ntouch canary\nEOF", ") touch canary ;; x",
    "}; touch canary; {", "touch canary", "<(touch canary)", "-v", "-n", "--", "*", "?", "[a-z]*", "~",
    "$HOME", "${PATH}", "$$", "!!", "#", "%s%d\\n", "\\", "\\\\", "a\\", "\\n", " ", "  a  b  ", "\t",
    "\n", "a\n\n", "\r\n", "", "'", '"', "''", '""', "$'\\x41'", "é😀\u2028\u202e", "\x01\x02\x1b[31m\x7f",
    "]]", "[[", "(", ")", "=", "-eq", "{a,b}", "${{", "{{ v }}", "NERVE_V1", "&>canary", ">canary",
]  # fmt: skip


def random_values(count):
    chance = random.Random(74)
    alphabet = "".join(map(chr, range(1, 128))) + "$$``\"\"''\\\\\n\n(){}[]*?;&|<>é\x85\u2028😀"
    values = list(PAYLOADS)
    while len(values) < count:
        text = "".join(chance.choices(alphabet, k=chance.randrange(1, 30)))
        if chance.random() < 0.5:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(PAYLOADS) + text[at:]
        values.append(text)
    return values[:count]


def run_each(text, values, folder, once="once"):
    """What a command prints for each value, all in one process."""
    command, env = compile_command(text).fill({"v": values[0]})
    assert len(set(env.values())) == 1
    others = "".join(f"export {name}=$NERVE_V1\n" for name in env if name != "NERVE_V1")
    each = f"export NERVE_V1\n{others}{once}\nprintf '\\0'"
    script = f"once() {{\n{command}\n}}\nwhile IFS= read -r -d '' -u 9 NERVE_V1; do\n{each}\ndone 9< values"
    (folder / "values").write_bytes("".join(f"{value}\0" for value in values).encode())
    (folder / "script").write_text(script)
    done = subprocess.run(
        ["bash", "script"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=500,
    )
    assert not (folder / "canary").exists(), text
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1], done.stderr


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.full)])
@pytest.mark.parametrize(("text", "expected"), POSITIONS)
def test_a_value_arrives_byte_for_byte_in_every_position_and_nothing_of_it_is_run(
    tmp_path, text, expected, count
):
    values = random_values(count)
    printed, errors = run_each(text, values, tmp_path)
    wanted = [expected(value) for value in values]
    different = [(want, got) for want, got in zip(wanted, printed, strict=True) if want != got]
    assert not different[:3], errors[:300]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_position_in_which_a_value_could_become_code_is_refused_with_a_fix(text, why):
    with pytest.raises(UnsafeCommand) as caught:
        compile_command(text)
    assert why in caught.value.message
    assert caught.value.fix
    assert text[caught.value.offset :].startswith("v }}")
    assert "^" in str(caught.value)


SKELETONS = [
    "printf '%s' \"a $x\" b",
    "x=1; y=\"$x\" z='q'; a=(1 [2]=3); a[1]=4; echo $x",
    "if [[ $x == a* && -n \"y\" ]]; then echo yes; elif [ 1 -eq 2 ]; then echo no; fi",
    "case \"$x\" in a|'b') echo 1;; (c) echo 2;& *) echo $((1+2)) ;; esac",
    "for i in a b \"c d\"; do echo \"$i\" | cat >/dev/null; done 2>&1",
    "cat <<EOF\na $x $(echo b) `echo c` ${x:-d}\nEOF\necho after",
    "cat <<'EOF'\na $x\nEOF\necho after",
    "echo \"$(echo \"a $(echo b)\" $'c\\'d')\" `echo e` ${x:-f} $((1 + 2)) # end",
    "f() { local a=b; declare -a c=(d); printf -v e %s g; echo $1; }; f h",
    "true && { echo a; } || ( echo b ) & wait; ! false",
    "while read -r l; do echo $l; done < <(echo a; echo b) <<< c",
    "eval 'echo a'; bash -c 'echo b' c; echo d | bash; trap 'echo e' EXIT",
    "test -v x; unset x; export y=1; [[ 1 -lt 2 ]]; (( 1 + 1 )); let z=1",
    "time env A=b printf %s c; command printf d; 2>/dev/null echo e >/dev/null",
]  # fmt: skip


def everywhere():
    for text in SKELETONS:
        for at in range(len(text) + 1):
            if text[at - 1 : at] != "\\":
                yield text[:at] + V + text[at:]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
def test_wherever_a_value_is_put_into_a_command_it_is_refused_or_harmless(tmp_path, every):
    accepted = 0
    for text in list(everywhere())[::every]:
        try:
            compile_command(text)
        except ExprError:
            continue
        accepted += 1
        run_each(text, PAYLOADS[:21], tmp_path, "(once)")
    assert accepted > 60 / every


def builtins():
    names = subprocess.run(["bash", "-c", "compgen -b"], capture_output=True, text=True).stdout.split()
    for name in names:
        for words in (V, f"-- {V}", f"-a {V}", f"x {V}", f"{V} x", f"{V} {V}", f"x={V}", f"-p {V} x"):
            yield f"{name} {words}"


def test_no_command_of_bash_itself_runs_a_value(tmp_path):
    for text in builtins():
        try:
            compile_command(text)
        except ExprError:
            continue
        run_each(text, PAYLOADS[:21], tmp_path, "(once)")


def test_a_value_that_is_run_is_noticed_by_these_tests(tmp_path, monkeypatch):
    for text in ('eval "$NERVE_V1"', "echo $((NERVE_V1))", "declare -i n=$NERVE_V1", "RANDOM=$NERVE_V1"):
        command = SimpleNamespace(fill=lambda scope, text=text: (text, {"NERVE_V1": ""}))
        monkeypatch.setitem(globals(), "compile_command", lambda text, command=command: command)
        with pytest.raises(AssertionError):
            run_each(text, PAYLOADS[:21], tmp_path, "(once)")
        (tmp_path / "canary").unlink()


def test_the_command_and_its_variables():
    command = compile_command('echo {{ a }} "x {{ b.c }}" {{ d }} {{ e }} {{ f }}', ["a", "b", "d", "e", "f"])
    text, env = command.fill({"a": "it's", "b": {"c": [1, "é"]}, "d": None, "e": True, "f": 1.5})
    assert text == 'echo "${NERVE_V1}" "x ${NERVE_V2}" "${NERVE_V3}" "${NERVE_V4}" "${NERVE_V5}"'
    assert env == {
        "NERVE_V1": "it's",
        "NERVE_V2": '[1,"é"]',
        "NERVE_V3": "",
        "NERVE_V4": "true",
        "NERVE_V5": "1.5",
    }


def test_a_command_without_values_is_left_as_it_is():
    text = "echo 'it' \"${x}\" $(( 1 )) `date` ' not closed"
    assert compile_command(text).fill({}) == (text, {})
    assert compile_command("docker ps --format '\\{{.Names}}'").fill({}) == (
        "docker ps --format '{{.Names}}'",
        {},
    )


@pytest.mark.parametrize("value", ["a\0b", {"a": "x" * VALUE_LIMIT}, "é" * (VALUE_LIMIT // 2 + 1)])
def test_a_value_that_no_variable_can_hold_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"the value of \{\{ inputs.x \}\}"):
        compile_command("cat <<< {{ inputs.x }}").fill({"inputs": {"x": value}})


def test_the_largest_value_arrives():
    value = "x" * VALUE_LIMIT
    text, env = compile_command("printf %s {{ v }}").fill({"v": value})
    done = subprocess.run(["bash", "-c", text], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.stdout == value


def test_a_command_too_long_for_bash_is_refused():
    with pytest.raises(ExprError, match="at most 100,000 characters"):
        compile_command("echo {{ v }} " + "x" * 100_000)


def test_raw_is_not_there_and_the_message_says_so():
    with pytest.raises(ExprError):
        compile_command("echo {{ raw(v) }}")
    with pytest.raises(UnsafeCommand, match=r"there is no raw\(\)"):
        compile_command("echo '{{ v }}'")


def test_unknown_names_are_found_when_the_command_is_compiled():
    with pytest.raises(ExprError, match="inputz"):
        compile_command("echo {{ inputz.x }}", ["inputs"])


def test_a_long_command_is_compiled_quickly_whatever_it_holds():
    began = time.perf_counter()
    for piece in ("(", "$(", "${", '"', "'", "`", "<<a\n", "((", "$((", "[[ ", "case a in ", "\\", "a b "):
        try:
            compile_command(f"echo {V} " + piece * 8000)
        except ExprError:
            pass
    assert time.perf_counter() - began < 5

# ruff: noqa: E501 (a line is a script)
"""Commands with values: a value arrives byte for byte or is rejected; it is never run."""

import os
import random
import subprocess
import time
from types import SimpleNamespace

import pytest

from nerve.expr import ExprError
from nerve.spec.shell.command import MAX_VALUE_BYTES, UnsafeCommand, compile_command
from spec.shell_positions import direct, evaluating, feeding

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
    ("[[ {{ v }} == {{ v }} && {{ v }} != x{{ v }} ]] && printf %s {{ v }}", plain),
    ("[[ (-n x{{ v }}) && ! {{ v }} == x{{ v }} ]] && printf %s {{ v }}", plain),
    ("if [[ -n x{{ v }} ]]; then ([[ a < b ]]) && printf %s {{ v }}; fi", plain),
    ("[ {{ v }} = {{ v }} ] && printf %s {{ v }}", plain),
    ("case {{ v }} in \"{{ v }}\") printf %s {{ v }} ;; *) printf BAD ;; esac", plain),
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
    ("x={{ v }}\ncat <<EOF\n$x\nEOF", line),
    ("x={{ v }}\ncat <<-EOF\n\ta $x\n\tEOF", lambda value: f"a {value}\n"),
    ("printf %s {{ v }} > \"out\"; cat out", plain),
    ("f() { printf %s \"$1\"; }; x={{ v }}; f \"$x\"", plain),
    ("a=(b); a+=({{ v }}); printf %s \"${a[1]}\"", plain),
    ("(trap 'printf %s \"$x\"' EXIT; x={{ v }}; exit)", plain),
    ("n=1; ((n++)); for i in $(seq 2); do n=$((n + i)); done; [ \"$n\" -eq 5 ] && printf %s {{ v }}", plain),
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
    ("cat <<'EOF'\n{{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("cat <<\\EOF\n{{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("cat <<E\"O\"F\n{{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("cat <<{{ v }}\nx\nEOF", "A value cannot be the delimiter of a here-document"),
    ("true # {{ v }}", "comment"),
    ("# {{ v }}", "comment"),
    ("eval {{ v }}", "`eval` evaluates this word"),
    ("eval \"echo {{ v }}\"", "`eval`"),
    ("\\eval {{ v }}", "`eval`"),
    ("command eval {{ v }}", "`eval`"),
    ("x=1 builtin eval {{ v }}", "`eval`"),
    ("eval \"$(printf %s {{ v }})\"", "`eval`"),
    ("true; if eval {{ v }}; then true; fi", "`eval`"),
    ("for x do eval {{ v }}; done", "This script cannot be parsed as bash"),
    ("case a in a) eval {{ v }};; esac", "`eval`"),
    ("trap {{ v }} EXIT", "`trap`"),
    ("let x={{ v }}", "`let`"),
    (". {{ v }}", "`.`"),
    ("source <(echo {{ v }})", "`source`"),
    ("ssh host cat {{ v }}", "`ssh`"),
    ("bash -c {{ v }}", "`bash` runs this word as code"),
    ("bash -c \"echo {{ v }}\"", "`bash` runs this word as code"),
    ("sh -ec \"echo {{ v }}\"", "`sh` runs this word as code"),
    ("/bin/sh -c 'echo \"$1\"' sh {{ v }}", "`sh` runs this word as code"),
    ("env -i bash -lc {{ v }}", "`bash` runs this word as code"),
    ("find . -exec sh -c \"{{ v }}\" \\;", "`sh` runs this word as code"),
    ("\"$SHELL\" -c {{ v }}", "`bash` runs this word as code"),
    ("bash <<EOF\necho {{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("bash <<< {{ v }}", "`bash` runs its standard input, which contains a value"),
    ("bash -s <<EOF\necho {{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("{ bash; } <<EOF\necho {{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("(sh) <<< {{ v }}", "This script cannot be parsed as bash"),
    ("python3 - <<EOF\nprint('{{ v }}')\nEOF", "Values are not expanded in a here-document"),
    ("echo {{ v }} | bash", "`bash` runs its standard input, which contains a value"),
    ("echo {{ v }} | sudo sh", "`sh` runs its standard input, which contains a value"),
    ("echo {{ v }} | tee x | bash", "`bash` runs its standard input, which contains a value"),
    ("echo {{ v }} | (bash)", "`bash` runs its standard input, which contains a value"),
    ("echo {{ v }} | { bash; }", "`bash` runs its standard input, which contains a value"),
    ("echo {{ v }} | while true; do bash; done", "`bash` runs its standard input, which contains a value"),
    ("(echo {{ v }}) | bash", "`bash` runs its standard input, which contains a value"),
    ("{ echo {{ v }}; true; } | bash", "`bash` runs its standard input, which contains a value"),
    ("for x in {{ v }}; do echo $x; done | bash", "`bash` runs its standard input, which contains a value"),
    ("cat <<EOF | bash\n{{ v }}\nEOF", "Values are not expanded in a here-document"),
    ("cat <<EOF |\n{{ v }}\nEOF\nbash", "A value could become the name of a program here"),
    ("python3 -c \"print('{{ v }}')\"", "`python3` runs this word as code"),
    ("perl -pe \"s/a/{{ v }}/\" file", "`perl`"),
    ("node --eval \"{{ v }}\"", "`node`"),
    ("awk \"/{{ v }}/\" file", "`awk`"),
    ("sed -i \"s/a/{{ v }}/\" file", "`sed`"),
    ("sed -e {{ v }} file", "`sed`"),
    ("echo ${x:-{{ v }}}", "inside ${…}"),
    ("echo \"${x:-{{ v }}}\"", "inside ${…}"),
    ("echo ${x:-$(echo {{ v }})}", "Bash splits this into several words,"),
    ("echo \"${x[{{ v }}]}\"", "Bash evaluates the index of an array"),
    ("echo ${{ v }}", "A `$` precedes a value"),
    ("echo \"${{ v }}\"", "A `$` precedes a value"),
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
    ("[ {{ v }} {{ v }} ]", "This script cannot be parsed as bash"),
    ("read {{ v }}", "`read` evaluates this word"),
    ("unset {{ v }}", "`unset` evaluates this word"),
    ("a[{{ v }}]=1", "Bash evaluates the index of an array"),
    ("a=([{{ v }}]=1)", "index"),
    ("declare -i n={{ v }}", "`declare` with this option evaluates"),
    ("declare -n n={{ v }}", "`declare` with this option evaluates"),
    ("declare {{ v }}=1", "`declare` evaluates"),
    ("export \"{{ v }}\"", "`export` evaluates"),
    ("declare -i n; n={{ v }}", "`declare` with this option evaluates"),
    ("n={{ v }}; f() { local -ri n; }", "`local` with this option evaluates `n`"),
    ("SECONDS={{ v }}", "Bash or other programs evaluate the variable `"),
    ("PS4={{ v }}; set -x", "Bash or other programs evaluate the variable `"),
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
    ("for {{ v }} in a; do true; done", "This script cannot be parsed as bash"),
    ("echo `echo {{ v }}`", "backticks"),
    ("echo \"`echo {{ v }}`\"", "backticks"),
    ("echo {{ v }} '", "This script cannot be parsed as bash"),
    ("echo {{ v }} \"", "This script cannot be parsed as bash"),
    ("echo {{ v }} $(", "This script cannot be parsed as bash"),
    ("echo {{ v }} )", "This script cannot be parsed as bash"),
    ("echo {{ v }} ${x", "This script cannot be parsed as bash"),
    ("cat <<EOF\n{{ v }}\n", "Values are not expanded in a here-document"),
    ("cat <<EOF\nx\\\nEOF\n{{ v }}\n", "A value could become the name of a program here"),
    ("case a in {{ v }}", "This script cannot be parsed as bash"),
    ("[[ {{ v }}", "This script cannot be parsed as bash"),
    ("echo @({{ v }})", "This script cannot be parsed as bash"),
    ("$(" * 200 + V + ")" * 200, "A value could become the name of a program here"),
    ("list=(a b c); echo \"${list[{{ v }}]}\"", "Bash evaluates the index of an array"),
    ("echo $[ {{ v }} + 1 ]", "Bash evaluates strings in arithmetic as code"),
    ("read -r {{ v }} <<< 1", "`read` evaluates this word"),
    ("m=( [{{ v }}]=1 )", "Bash evaluates the index of an array"),
    ("cat > {{ v }}", "A value used as a file or pattern must be quoted"),
    ("x={{ v }}; rm $x", "Bash splits this into several words,"),
    ("rm $(echo {{ v }})", "Bash splits this into several words,"),
    ("case x in {{ v }}) ;; esac", "A value used as a file or pattern must be quoted"),
    ("bash -o pipefail <<< {{ v }}", "`bash` runs its standard input, which contains a value"),
    ("timeout -s KILL 5 bash <<< {{ v }}", "`bash` runs its standard input, which contains a value"),
    ("sudo -u deploy bash <<< {{ v }}", "`bash` runs its standard input, which contains a value"),
    ("docker exec -i c bash <<< {{ v }}", "`bash` runs its standard input, which contains a value"),
    ("kubectl exec -i p -- sh <<< {{ v }}", "`sh` runs its standard input, which contains a value"),
    ("echo {{ v }} | ssh host", "`ssh` runs its standard input, which contains a value"),
    ("echo {{ v }} | ssh host 'sudo bash -s'", "`ssh` runs its standard input, which contains a value"),
    ("bash <(echo {{ v }})", "`bash` runs this word as code"),
    ("echo {{ v }} | xargs -I% sh -c 'echo %'", "`xargs` splits a value into words"),
    ("flock f -c {{ v }}", "`flock` runs this word as code"),
    ("script -qc {{ v }}", "`script` runs this word as code"),
    ("node --eval={{ v }}", "`node` runs this word as code"),
    ("make X={{ v }}", "`make` runs its words as code"),
    ("git -c alias.z=!{{ v }} z", "`git` runs this word as code"),
    ("n={{ v }}; echo $((n + 1))", "Bash evaluates strings in arithmetic as code"),
    ("n={{ v }}; a=(1); echo ${a[$n]}", "Bash splits this into several words,"),
    ("n={{ v }}; [[ $n -eq 1 ]]", "`[[ … -eq … ]]` evaluates its operands as code"),
    ("n={{ v }}; read \"$n\"", "`read` evaluates this word"),
    ("n={{ v }}; s=x; echo ${s:n}", "Bash evaluates the numbers in ${…:…}"),
    ("n={{ v }}; for ((i=0; i<n; i++)); do :; done", "Bash evaluates strings in arithmetic as code"),
    ("n={{ v }}; [ $n = x ]", "Bash splits this into several words,"),
    ("[ {{ v }} = a -o b = b ]", "`[` could interpret a value as an operator"),
    ("echo {{ v }} > run.sh; bash run.sh", "`bash` runs a file that the script writes"),
    ("echo {{ v }} > run.sh; . ./run.sh", "`.` runs a file that can contain a value"),
    ("echo $NERVE_V1 {{ v }}", "Bash splits this into several words,"),
]  # fmt: skip

PAYLOADS = [
    "$(touch canary)", "a[$(touch canary)]", "touch canary", "-v a[$(touch${IFS}canary)]", "($(touch canary))",
    "`touch canary`", "__import__('os').system('touch canary')", "system('touch canary')",
    'BEGIN{system("touch canary")}', "1e touch canary", "touch canary |", "$(shell touch canary)", "${x:=$(touch canary)}", "; touch canary;", "| touch canary",
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
    """The output of a command for each value, in one process."""
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
    assert 0 <= caught.value.offset < len(text)
    assert "^" in str(caught.value)


def test_a_refusal_points_at_the_value_or_at_the_command_that_evaluates_it():
    for text, pointed in [
        ('echo é "é" $(( {{ v }} + 1 ))', "v }}"),
        ("echo é {{ w }} '{{ v }}'", "v }}"),
        ("echo {{ w }} é | bash", "bash"),
        ("n={{ v }}; echo $((n))", "$((n))"),
        ("n={{ v }}\n[[ é ]] && [[ $n -eq 1 ]] && echo {{ w }}", "-eq"),
    ]:
        with pytest.raises(UnsafeCommand) as caught:
            compile_command(text)
        assert text[caught.value.offset :].startswith(pointed)


FIXES = [
    ("printf %s 'it is {{ v }}'", "printf %s 'it is '{{ v }}"),
    ('printf %s $"{{ v }}"', 'printf %s "{{ v }}"'),
    ("cat <<EOF\n{{ v }}\nEOF", "value={{ v }}\ncat <<EOF\n$value\nEOF"),
    ("cat <<'EOF'\n{{ v }}\nEOF", "value={{ v }}\ncat <<EOF\n$value\nEOF"),
    ("bash <<EOF\necho {{ v }}\nEOF", "export value={{ v }}\nbash <<'EOF'\necho \"$value\"\nEOF"),
    ("python3 - <<EOF\nprint('{{ v }}')\nEOF", "export value={{ v }}\npython3 - <<'EOF'\nimport os\nprint(os.environ['value'])\nEOF"),
    ("eval echo {{ v }}", "echo {{ v }}"),
    ('trap "echo {{ v }}" EXIT', "value={{ v }}; trap 'echo \"$value\"' EXIT; exit"),
    ('bash -c "echo {{ v }}"', "export value={{ v }}; bash -c 'echo \"$value\"'"),
    ('find . -exec sh -c "echo {{ v }}" \\;', "export value={{ v }}; find . -maxdepth 0 -exec sh -c 'echo \"$value\"' \\;"),
    ("bash <<< {{ v }}", "echo 'echo \"$1\"' > /dev/null; bash ./script.sh {{ v }}"),
    ("echo {{ v }} | bash", "bash script.sh {{ v }}"),
    ("python3 -c \"print('{{ v }}')\"", "export value={{ v }}; python3 -c 'import os; print(os.environ[\"value\"])'"),
    ("perl -e \"print '{{ v }}'\"", "export value={{ v }}; perl -e 'print $ENV{value}'"),
    ('awk "/{{ v }}/" file', "export value={{ v }}; awk 'BEGIN { print ENVIRON[\"value\"] }'"),
    ('sed "s/a/{{ v }}/" file', "export value={{ v }}; echo a | awk '{ print ENVIRON[\"value\"] }'"),
    ("printf {{ v }}", "printf %s {{ v }}"),
    ("echo ${x:-{{ v }}}", 'value={{ v }}; echo "${x:-${value}}"'),
    ("echo $(( {{ v }} + 1 ))", "echo {{ v + 1 }}"),
    ("n={{ v }}; echo $((n + 1))", "echo {{ v + 1 }}"),
    ("list=(a b c); echo \"${list[{{ v }}]}\"", "echo {{ v[0] }}"),
    ("[[ {{ v }} -eq 1 ]]", "[ {{ v }} -eq 1 ] || echo no"),
    ("n={{ v }}; [[ $n -gt 1 ]]", 'n={{ v }}; [ "$n" -gt 1 ] || echo no'),
    ("x={{ v }}; [ $x = y ]", 'x={{ v }}; [ "$x" = y ] || echo no'),
    ("[ {{ v }} = y -o {{ v }} = z ]", "[ {{ v }} = y ] || [ {{ v }} = z ] || echo no"),
    ("x={{ v }}; ls $x", 'x={{ v }}; ls "$x" || true'),
    ("declare -i n={{ v }}", "declare n={{ v }}"),
    ("declare {{ v }}=1", "name={{ v }}"),
    ("cat > {{ v }}.txt", 'cat > "x{{ v }}.txt" < /dev/null || true'),
    ("case x in {{ v }}) ;; esac", 'case x in "{{ v }}") ;; esac'),
    ("echo `echo {{ v }}`", 'echo "$(echo {{ v }})"'),
    ("echo {{ v }} | xargs echo", "while IFS= read -r line; do echo \"$line\"; done <<< {{ v }}"),
]  # fmt: skip
"""What is refused, and the same after the fix that the refusal names."""


@pytest.mark.parametrize(("refused", "fixed"), FIXES)
def test_the_fix_of_a_refusal_is_accepted_and_runs_nothing_of_the_value(tmp_path, refused, fixed):
    with pytest.raises(UnsafeCommand):
        compile_command(refused)
    (tmp_path / "script.sh").write_text('printf %s "$1"\n')
    run_each(fixed, PAYLOADS[: 12 if "python" in fixed else 60], tmp_path, "(once)")


def run_with(text, value, folder):
    command, env = compile_command(text).fill({"v": value})
    subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert not (folder / "canary").exists(), (text, value)


@pytest.mark.parametrize("positions", [feeding, evaluating, direct])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
def test_no_generated_position_is_accepted_that_runs_the_value(tmp_path, positions, every):
    accepted = 0
    for number, text in enumerate(positions()):
        if number % every:
            continue
        try:
            compile_command(text)
        except ExprError:
            continue
        accepted += 1
        for value in PAYLOADS[:35]:
            run_with(text, value, tmp_path)
    assert accepted < 100 / every + 10


def test_an_environment_variable_with_a_value_is_not_evaluated_either():
    assert compile_command('echo "$N"', variables=["N"]).fill({}) == ('echo "$N"', {})
    for text in ("echo $((N + 1))", 'eval "$N"', "[[ $N -eq 1 ]]", "rm $N", 'echo "$N" | bash'):
        assert compile_command(text).fill({}) == (text, {})
        with pytest.raises(UnsafeCommand):
            compile_command(text, variables=["N"])


ORDINARY = [
    'set -euo pipefail\ncd "$(git rev-parse --show-toplevel)"\nnpm test -- {{ v }}',
    "source .venv/bin/activate && pytest {{ v }}",
    "count=$(ls | wc -l); if (( count > 3 )); then echo {{ v }}; fi",
    "start=$(date +%s); run {{ v }}; echo $(( $(date +%s) - start ))",
    'git commit -m {{ v }} && gh pr create --title {{ v }} --body "$(cat body.md)"',
    'curl -s -H "Authorization: Bearer $TOKEN" -d {{ v }} "https://example.com/{{ v }}"',
    "echo {{ v }} | jq -r .name; jq -n --arg x {{ v }} '{x: $x}'",
    "python3 script.py --name {{ v }}; bash x.sh {{ v }}; node index.js {{ v }}; python -m pytest {{ v }} -q",
    "trap 'rm -f \"$tmp\"' EXIT\ntmp=$(mktemp); echo {{ v }} > \"$tmp\"; cat \"$tmp\"",
    "docker run --rm image echo {{ v }}; docker exec c cat {{ v }}; kubectl get pod {{ v }}",
    "printf %s {{ v }} | ssh -p 22 host 'cat > file'",
    "sed -n '1p' {{ v }}; awk -F , '{print $1}' {{ v }}; sed -i -e s/a/b/ -e s/c/d/ {{ v }}",
    "sudo systemctl restart {{ v }}; timeout 60 ./run.sh {{ v }}; env A=1 run {{ v }}",
    "find . -name {{ v }} -exec rm {} +",
    'files=$(git diff --name-only); ruff check $files {{ v }}; echo "x={{ v }}" >> "$GITHUB_OUTPUT"',
    "run {{ v }} 2>/dev/null | tee out.txt | head -n 5",
    "i=0; until run {{ v }} || [ $i -ge 3 ]; do ((i++)); sleep $((i * 2)); done",
    "if command -v {{ v }} >/dev/null; then echo yes; fi; [ $# -eq 0 ] && exit {{ v }}",
    "rsync -av -e ssh src/ {{ v }}; tar czf out.tgz {{ v }}; diff <(echo {{ v }}) <(cat f)",
    "\"$VENV/bin/python\" run.py {{ v }}; PYTHONPATH=src python3 -m app {{ v }} # it's fine",
]  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_scripts_are_accepted(text):
    assert not compile_command(text).warnings


def test_a_value_inside_a_query_is_a_warning():
    (warning,) = compile_command("psql -c \"select '{{ v }}'\"").warnings
    assert "query of `psql`" in warning.message


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


@pytest.mark.parametrize("value", ["a\0b", {"a": "x" * MAX_VALUE_BYTES}, "é" * (MAX_VALUE_BYTES // 2 + 1)])
def test_a_value_that_no_variable_can_hold_is_rejected_with_its_expression(value):
    with pytest.raises(ValueError, match=r"The value of \{\{ inputs\.x \}\}"):
        compile_command("cat <<< {{ inputs.x }}").fill({"inputs": {"x": value}})


def test_the_largest_value_arrives():
    value = "x" * MAX_VALUE_BYTES
    text, env = compile_command("printf %s {{ v }}").fill({"v": value})
    done = subprocess.run(["bash", "-c", text], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.stdout == value


def test_a_command_too_long_for_bash_is_refused():
    with pytest.raises(ExprError, match="at most 100,000 characters"):
        compile_command("echo {{ v }} " + "x" * 100_000)


def test_raw_insertion_is_not_supported():
    with pytest.raises(ExprError):
        compile_command("echo {{ raw(v) }}")


def test_unknown_names_are_found_when_the_command_is_compiled():
    with pytest.raises(ExprError, match="inputz"):
        compile_command("echo {{ inputz.x }}", ["inputs"])


def test_a_long_command_is_compiled_quickly():
    began = time.process_time()
    for piece in ("(", "$(", "${", '"', "'", "`", "<<a\n", "((", "$((", "[[ ", "case a in ", "\\", "a b "):
        try:
            compile_command(f"echo {V} " + piece * 8000)
        except ExprError:
            pass
    assert time.process_time() - began < 5

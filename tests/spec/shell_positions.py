# ruff: noqa: E501 (a line is a script)
"""Generated positions of values in shell commands: program, path and use of the value."""

from itertools import product

READERS = [
    "bash", "sh", "bash -s", "sh -", "bash -o pipefail", "bash -euo pipefail", "bash /dev/stdin", "bash -x",
    "python3", "python3 -", "python3 - arg", "perl", "/bin/sh", '"$BASH"', "busybox sh", "xargs -I% sh -c 'echo %'",
    "xargs sh -c", "bash -c bash", "bash -c 'cat | bash'", "(bash)", "{ bash; }", "source /dev/stdin", ". /dev/fd/0",
    "while true; do bash; break; done", "if true; then sh; fi", "eval bash", "(cd /tmp && sh)",
]  # fmt: skip
PREFIXES = [
    "", "timeout 5", "timeout -s KILL 5", "env", "env -u X", "env -i X=1", "nice -n 5", "nohup", "stdbuf -oL",
    "flock f", "setsid -w", "command", "exec", "time", "command env", "timeout 5 nice",
]  # fmt: skip
FEEDS = [
    "{} <<< {{{{ v }}}}",
    '{} <<< "{{{{ v }}}}"',
    "echo {{{{ v }}}} | {}",
    "printf '%s\\n' {{{{ v }}}} | cat | {}",
    "x={{{{ v }}}}; echo \"$x\" | {}",
    "x={{{{ v }}}}; {} <<< \"$x\"",
    "x={{{{ v }}}}; {} <<EOF\n$x\nEOF",
    "x={{{{ v }}}}; {} <<-EOF\n\t$x\n\tEOF",
    "x={{{{ v }}}}; cat <<EOF | {}\n$x\nEOF",
    "{} < <(echo {{{{ v }}}})",
    "{} <(echo {{{{ v }}}})",
    "x=$(echo {{{{ v }}}}); echo \"$x\" | {}",
    "f() {{ {}; }}; echo {{{{ v }}}} | f",
    "f() {{ echo {{{{ v }}}}; }}; f | {}",
    "echo {{{{ v }}}} > s; {} s",
    "echo {{{{ v }}}} > s; {} < s",
    "x={{{{ v }}}}; cat > s <<EOF\n$x\nEOF\n{} s",
    "echo {{{{ v }}}} | tee s >/dev/null; {} ./s",
    "echo {{{{ v }}}} | tee >({}) >/dev/null; sleep 0.01",
    "for x in {{{{ v }}}}; do echo \"$x\"; done | {}",
    "read -r x <<< {{{{ v }}}}; echo \"$x\" | {}",
    "{} 3<<< {{{{ v }}}} <&3",
    "{{ echo {{{{ v }}}}; }} | {}",
    "true && echo {{{{ v }}}} | {}",
]  # fmt: skip

ASSIGN = [
    "n={{ v }}", 'n="{{ v }}"', "export n={{ v }}", "declare n={{ v }}", "n=$(echo {{ v }})",
    'n="$(printf %s {{ v }} | cat)"', "n=`echo \"$NERVE_V1\"`; : {{ v }}", "read -r n <<< {{ v }}",
    "IFS= read -r n < <(echo {{ v }})", "printf -v n %s {{ v }}", "for n in {{ v }}; do :; done",
    "m={{ v }}; n=$m", "m={{ v }}; k=\"$m\"; n=${k}", "mapfile -t n <<< {{ v }}", "q=({{ v }}); n=${q[0]}",
    "set -- {{ v }}; n=$1", 'set -- {{ v }}; n="$*"', "f() { n=$1; }; f {{ v }}", "f() { n=\"$2\"; }; f a {{ v }}",
    "f() { echo {{ v }}; }; n=$(f)", ": {{ v }}; n=$_", "[[ {{ v }} =~ (.*) ]]; n=${BASH_REMATCH[1]}",
    "echo {{ v }} > s; n=$(cat s)", "echo {{ v }} > s; n=$(<s)", "echo {{ v }} > s; read -r n < s",
    "n=; n+={{ v }}", "while read -r n; do break; done <<< {{ v }}", "n=$NERVE_V1; : {{ v }}",
    "m={{ v }}; n=${m%x}", "m={{ v }}; n=${m:-1}", "m={{ v }}; : ${n:=$m}", "read -r <<< {{ v }}; n=$REPLY",
    "n={{ v }} && true", "if true; then n={{ v }}; fi", "(export n={{ v }}); n={{ v }}", "n[0]={{ v }}",
    "n=({{ v }})", "echo {{ v }} | { read -r n; ", "m={{ v }}; n=${!m}; n=$m", "n=1; n={{ v }}", "k=n; : {{ v }}; n=$NERVE_V1",
]  # fmt: skip
USES = [
    ": $((n))", ": $((n + 1))", ": $(( $n ))", ": \"$(( ${n} ))\"", "((n))", "(( n > 1 )) && :", ": $[n]", ": $[ $n + 1 ]",
    "a=(1 2); : ${a[n]}", "a=(1 2); : \"${a[$n]}\"", "a[n]=1", "a[$n]=1", "a[\"$n\"]=1", "a=([n]=1)", "a=([$n]=1)",
    "a+=([\"$n\"]=1)", "s=abc; : ${s:n}", "s=abc; : ${s:$n}", "s=abc; : \"${s:0:n}\"", "s=abc; : ${s: $n : 1}",
    "[[ $n -eq 1 ]]", "[[ n -eq 1 ]]", "[[ 1 -lt $n ]]", "[[ -n x && \"$n\" -ge 1 ]]", "[[ ! $n -ne 3 ]]",
    "[[ -v $n ]]", "[[ -v \"$n\" ]]", "for ((i=0; i<n; i++)); do break; done", "for ((i=n; ; )); do break; done",
    "let n", "let n+1", "let \"m=n\"", "let m=$n", "declare -i m=$n", "declare -i m; m=$n", "typeset -i m=\"$n\"",
    "f() { local -i m=$n; }; f", "declare -i n", "eval \"$n\"", "eval : \"$n\"", "eval 'echo $((n))'", "eval \"echo $n\"",
    "$n", "${n}", "\"$n\"", "$n x", "env $n", "sudo=1 $n", "exec $n", "command $n", ": ${!n}", ": \"${n@P}\"", "read \"$n\" < /dev/null",
    "read -r $n <<< 1", "unset \"$n\"", "unset $n", "unset -v \"$n\"", "printf -v \"$n\" x", "printf -v$n x", "printf \"$n\"", "printf $n",
    "printf %n \"$n\"", "test -v \"$n\"", "[ -v \"$n\" ]", "[ -v $n ]", "[ $n ]", "test $n", "[ $n = x ]", "[ \"$n\" \"$n\" ]", "[ $n -gt 1 ]",
    "trap \"$n\" EXIT", "trap 'echo $((n))' EXIT", "trap $n EXIT", ". <(echo \"$n\")", "source <(printf %s \"$n\")",
    "source /dev/stdin <<< \"$n\"", "echo \"$n\" > t.sh; . ./t.sh", "echo \"$n\" > t.sh; bash t.sh", "declare \"$n\"", "declare \"$n=1\"", "export \"$n\"", "export $n",
    "readonly \"$n\"", "f() { local \"$n\"; }; f", "mapfile \"$n\" < /dev/null", "mapfile -C \"$n\" -c 1 x <<< a", "getopts a \"$n\"", "wait -n -p \"$n\"",
    "declare -a q; declare q=\"$n\"", "declare -a q=\"$n\"", "declare -A q=\"$n\"", "declare -n r=$n; : $r", "local n",
    "PS4=$n; set -x; :", "PROMPT_COMMAND=$n", "BASH_ENV=<(echo \"$n\") bash -c :", "SECONDS=$n", "RANDOM=$n", "OPTIND=$n", "bash -c \"$n\"",
    "sh -c \"echo $n\"", "bash -c \"echo '$n'\"", "export n; bash -c 'echo $((n))'", "n=\"$n\" bash -c 'echo $((n))'", "n=\"$n\" bash -c 'eval \"$n\"'",
    "echo \"$n\" | bash", "bash <<< \"$n\"", "bash <<EOF\n$n\nEOF", "cat <<EOF\n$((n))\nEOF", "cat <<EOF\nx\n$(( n ))\nEOF", "cat <<EOF\n${a[$n]}\nEOF",
    "cat <<EOF\n$(eval \"$n\")\nEOF", "case x in $((n))) ;; esac", "[[ x =~ $((n)) ]]", "[[ x == $((n)) ]]", "q=(1 2); : \"${q[@]:n}\"",
    ": ${x:-$((n))}", ": ${x:-${a[$n]}}", ": \"$(echo $((n)))\"", "f() { : $(($1)); }; f \"$n\"", "f() { eval \"$1\"; }; f \"$n\"", "f() { \"$@\"; }; f $n",
    "python3 -c \"$n\"", "python3 -c \"print('$n')\"", "perl -e \"$n\"", "perl -pe 1 \"$n\"", "awk \"$n\" /dev/null", "awk \"BEGIN { $n }\"", "awk -v x=1 \"$n\" /dev/null",
    "sed \"$n\" /dev/null", "sed -e \"$n\" /dev/null", "sed -n \"1$n\" /etc/hostname", "find . -maxdepth 0 -exec sh -c \"$n\" \\;",
    "find . -maxdepth 0 -exec $n \\;", "xargs sh -c \"$n\" < /dev/null", "echo \"$n\" | xargs -I% sh -c %", "echo \"$n\" | xargs env", "env -S \"$n\"",
    "flock f -c \"$n\"", "script -qc \"$n\" /dev/null", "git -c alias.z=\"!$n\" z", "git -c \"alias.z=!$n\" z", "printf 'all:\\n\\techo $(X)\\n' > m; make -f m X=\"$n\"",
    "nohup sh -c \"$n\"", "timeout 5 bash -c \"$n\"", "timeout -s KILL 5 sh -c \"$n\"", "env X=1 sh -c \"$n\"", "nice sh -c \"$n\"", "exec sh -c \"$n\"",
    "bash -o pipefail -c \"$n\"", "bash -euo pipefail -c \"$n\"", "bash --norc -c \"$n\"", "bash --rcfile <(echo \"$n\") -i < /dev/null", "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec=\"$n\" /etc/hostname",
    "alias z=\"$n\"", "shopt -s expand_aliases; alias z=\"$n\"\nz", "compgen -W \"$n\"", "complete -C \"$n\" x", "bind -x \"$n\"", "hash -p \"$n\" zz; zz", "jobs -x $n",
    "PATH=$n:$PATH ls", "enable -f \"$n\" x", "x=`$n`", ": $($n)", ": $(eval \"$n\")", "coproc $n", "! $n", "true | $n", "cat < <($n)", "{ $n; }", "($n)",
    "while $n; do break; done", "if $n; then :; fi", "until ((n)); do break; done", "case $((n)) in x) ;; esac", "select i in 1; do : $((n)); break; done <<< 1", "time $n", "true && $n", "$n &\nwait",
]  # fmt: skip


def feeding():
    """A value on the standard input of something that runs it."""
    for reader, feed in product(READERS, FEEDS):
        yield feed.format(reader)
    for prefix, reader, feed in product(PREFIXES[1:], READERS[:11], FEEDS[:10]):
        yield feed.format(f"{prefix} {reader}")


def evaluating():
    """A value in a variable, and the variable where bash, or another program, evaluates it."""
    for assign, use in product(ASSIGN, USES):
        if assign.endswith("{ read -r n; "):
            yield f"{assign}{use}\n}}"
        else:
            yield f"{assign}\n{use}"


def direct():
    """The value itself where a variable is evaluated."""
    for use in USES:
        for name in ("${n}", '"$n"', "$n", "n"):
            for value in ("{{ v }}", '"{{ v }}"'):
                if name in use:
                    yield use.replace(name, value)
    for prefix in PREFIXES:
        for words in ("{{ v }}", "{{ v }} x", "-c {{ v }}", "sh -c {{ v }}", "bash {{ v }}", "python3 -c {{ v }}",
                      "bash -c 'echo $0' {{ v }}", "sh -c 'eval \"$1\"' sh {{ v }}", "awk {{ v }}", "-- {{ v }}",
                      "X={{ v }}", "X={{ v }} sh -c 'eval \"$X\"'", "bash -ic {{ v }}", "perl -e {{ v }}", "sed {{ v }} s"):  # fmt: skip
            yield f"{prefix} {words}".strip()

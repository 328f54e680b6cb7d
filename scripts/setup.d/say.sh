# Output and small helpers shared by the set-up's parts. Sourced, never run.

say() { printf '%s\n' "$*"; }
step() { printf '\033[1m==>\033[0m %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints the comment at the top of a script as its usage.
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "${1:-$0}"; }

have() { command -v "$1" >/dev/null 2>&1; }

# Daemons and setuid helpers lie in sbin folders, which Debian leaves out of an ordinary user's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# version_at_least 1.85.0 1.85 is true. It compares plain numbers only.
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# Prints a hash over the contents of the given files. Stamp files contain it.
fingerprint() {
    { [ $# -eq 0 ] || cat "$@" 2>/dev/null; } | sha256sum | cut -d' ' -f1
}

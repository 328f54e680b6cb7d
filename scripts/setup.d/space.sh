# Reports before anything is installed that the disk has too little space, so that the set-up does not fail in the
# middle with "No space left on device". Sourced by scripts/setup.
# shellcheck disable=SC2154 # top and here are set by the script that sources this

# Prints how many gigabytes a part takes in all: packages, environments, builds, and the output of its runs. The numbers
# were measured on a machine that had none of these.
gigabytes() {
    case $1 in
        test) echo 11 ;;
        bench | release) echo 6 ;;
        demo | heat | street) echo 4 ;;
        gallery) echo 3 ;;
        *) echo 1 ;;
    esac
}

check_space() {
    local part need=0 takes free has
    for part in "$@"; do
        takes=$(gigabytes "$part")
        [ "$takes" -le "$need" ] || need=$takes
    done
    free=$(free_gigabytes)
    [ "$free" -lt "$need" ] || return 0
    # What is built already needs no further space, so it is subtracted.
    has=$(du -s --block-size=1G "$top/build" 2>/dev/null | cut -f1 || true)
    need=$((need - ${has:-0}))
    [ "$free" -lt "$need" ] || return 0
    local text="$top is on a disk with $free GB free, and $* may take some $need GB; free some (\`make clean\` gives back what was built), or put this folder onto another disk"
    # If less than a quarter of the needed space is free, that is too little, even if parts are installed already.
    [ $((4 * free)) -ge "$need" ] || die "$text"
    warn "$text"
}

free_gigabytes() { df --output=avail --block-size=1G "$top" | tail -n 1 | tr -d ' '; }

# Installs missing tools for building and testing: a C compiler, the list of certificate
# authorities, PostgreSQL's server programs, PgBouncer, Python, Rust, and the libraries of
# scripts/peers.
# Sourced by the scripts beside it, in the root of the repository.

# The benchmark of webhooks opens more files than the usual limit of 1,024 for users allows.
ulimit -n "$(ulimit -H -n)" 2>/dev/null || true

say() {
    printf '%s\n' "$*"
}

stop() {
    printf '%s: %s\n' "$0" "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Debian keeps the server's programs out of PATH, one directory per version. They are needed even if
# TENURE_TEST_POSTGRES names a server: tests that kill a server start their own.
have_postgres() {
    have postgres && have initdb && return 0
    for bin in /usr/lib/postgresql/*/bin; do
        [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] && return 0
    done
    return 1
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs Debian packages.
install_packages() {
    have apt-get ||
        stop "something is missing, and there is no apt-get to install it; install what Debian calls: $*"
    [ "$(id -u)" = 0 ] || have sudo || stop "something is missing; as root: apt-get install $*"
    say "installing $*"
    as_root apt-get update -q || return
    case " $* " in
    *" postgresql "*) without_cluster install_each "$@" ;;
    *) install_each "$@" ;;
    esac
}

# Installs packages, and keeps their services from starting: the tests need only programs.
install_each() {
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e $policy ]; then
        made=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null && as_root chmod +x $policy
    fi
    each=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" || each=$?
    [ -z "$made" ] || as_root rm -f $policy
    return $each
}

# Runs a command with a setting that keeps PostgreSQL's package from creating and starting a
# cluster: the tests need only its programs. Then restores the previous setting, or that of the
# package.
without_cluster() {
    setting=/etc/postgresql-common/createcluster.conf
    [ ! -e $setting ] || as_root mv $setting $setting.before-tests
    as_root mkdir -p "${setting%/*}"
    echo 'create_main_cluster = false' | as_root tee $setting >/dev/null
    status=0
    "$@" || status=$?
    if [ -e $setting.before-tests ]; then
        as_root mv $setting.before-tests $setting
    elif [ -e /usr/share/postgresql-common/createcluster.conf ]; then
        as_root cp /usr/share/postgresql-common/createcluster.conf $setting
    fi
    return $status
}

# Installs Rust for this user with its own installer.
install_rust() {
    say "installing Rust"
    folder=$(mktemp -d) || return
    installer=$folder/rustup-init
    from=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init
    python3 -c 'import sys, urllib.request as u; u.urlretrieve(*sys.argv[1:])' "$from" "$installer" &&
        chmod +x "$installer" &&
        "$installer" -y --quiet --no-modify-path --profile minimal --default-toolchain stable >/dev/null
    status=$?
    rm -rf "$folder"
    return $status
}

install_tools() {
    [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    missing=
    have cc || missing="$missing gcc libc6-dev"
    ! have apt-get || [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
    have_postgres || missing="$missing postgresql"
    have pgbouncer || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
    # shellcheck disable=SC2086 # a list of words
    [ -z "$missing" ] || install_packages $missing || return
    if ! have cargo; then
        install_rust || return
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    for component in rustfmt clippy; do
        cargo "${component#rust}" --version >/dev/null 2>&1 && continue
        have rustup || stop "$component is missing, and there is no rustup to install it"
        rustup component add "$component" || return
    done
    scripts/peers/install "${CARGO_TARGET_DIR:-target}/tmp/peers"
}

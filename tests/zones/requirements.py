"""Whether this machine can have zones: root, network namespaces, and the packages."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.zones.database import PROGRAMS, binaries

INSTALL = "apt-get install patroni etcd-server postgresql iproute2 curl (without a cluster: create_main_cluster = false in /etc/postgresql-common/createcluster.conf)"


def what_is_missing() -> str:
    """In words, with what to do; empty: nothing."""
    if os.geteuid() != 0:
        return "zones are network namespaces, which only root may make: run it as root"
    try:
        Path("/dev/net/tun").open("rb").close()
    except OSError as error:
        return f"/dev/net/tun cannot be opened ({error.strerror}): the router between the zones needs TUN devices"
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "--net", "true"], capture_output=True, check=False).returncode
    ):
        return "network namespaces are not permitted here: zones need them (a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)"
    programs = [*PROGRAMS, "ip", "nsenter", "setpriv", "curl"]
    missing = [name for name in programs if shutil.which(name) is None]
    if binaries() is None:
        missing.append("Postgres")
    return f"{', '.join(missing)} missing: {INSTALL}" if missing else ""

"""Whether this machine can have zones: root, network namespaces, and the packages."""

import os
import shutil
from pathlib import Path

from tests.zones.database import PROGRAMS, binaries

INSTALL = "apt-get install patroni etcd-server postgresql iproute2 curl (without a cluster: create_main_cluster = false in /etc/postgresql-common/createcluster.conf)"


def what_is_missing() -> str:
    """In words, with what to do; empty: nothing."""
    if os.geteuid() != 0:
        return "zones are network namespaces, which only root may make: run it as root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun: the router between the zones needs TUN devices"
    if not Path("/proc/self/ns/net").exists():
        return "this kernel has no network namespaces"
    programs = [*PROGRAMS, "ip", "nsenter", "setpriv", "curl"]
    missing = [name for name in programs if shutil.which(name) is None]
    if binaries() is None:
        missing.append("Postgres")
    return f"{', '.join(missing)} missing: {INSTALL}" if missing else ""

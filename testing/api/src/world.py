"""What the daemon has while requests are made: one of everything, so that names in requests lead somewhere.

`mend` is the whole of it: what is missing is made, what is too much is removed. It runs before the first request and after every change that
succeeded, so that each request finds the same whatever came before it; a request that failed can be sent again by itself.

What could take the ground from under the rest (destroying a pool, taking disks away) is sent to the pool `vault` only: no pool is made in the
middle of another's requests but that one.
"""

from urllib.parse import quote

from daemon import Refused

MIB = 1 << 20
IQN = "iqn.1998-01.com.example"
GRAPH = {"expression": "volume.ops[volume]"}
# What others leave may stay up to here, for lists that are longer than a page of the smallest size.
LEFT_MAX = 12

# The names that stand in paths, by collection. The first of each is what bodies name.
NAMES = {
    "pools": ["tank", "vault"],
    "disks": ["tank/0", "vault/1"],
    "groups": ["vault/0"],
    "projects": ["tank/work", "tank/idle"],
    "volumes": ["tank/one", "tank/two", "tank/work/three", "tank/bare"],
    "snapshots": ["tank/one@first", "tank/two@second", "tank/work/three@third"],
    "bookmarks": ["tank/one#first"],
    "trash": ["tank/gone"],
    "hosts": ["esx1", "esx2"],
    "host-groups": ["cluster"],
    "levels": ["gold"],
    "users": ["somebody", "root"],
    "tokens": ["spare"],
    "worksheets": ["sheet"],
    "reports": ["sizing"],
    "channels": ["log"],
    "thresholds": ["busy"],
    # No request makes one of these alone, so what stands here has to be looked up.
    "tasks": [],
    "mappings": [],
    "moves": ["tank/one"],
    "receives": ["tank/one"],
    "sessions": [],
}
LOOKED_UP = ["tasks", "mappings"]
# The tokens that requests come with, and a user whom bodies need.
ALWAYS = {"viewer", "operator", "admin", "login"}

# A pool is these requests' ground; they go to `vault`.
ON_VAULT = {
    "PoolDestroy", "PoolExport", "PoolAdd", "PoolImport", "GroupRemove", "DiskRemove", "DiskReplace", "DiskOffline", "DiskOnline",
}  # fmt: skip


def bodies(disks):
    """A body for each operation that takes one, as a person would send it. Requests differ from these in a field or two."""
    return {
        "BookmarkCreate": {"snapshot": "tank/two@second", "name": "mark"},
        "BookmarkSet": {"name": "first"},
        "DiskScan": {"disks": [disks["vault"][0], disks["free"][0]]},
        "DiskLocate": {"seconds": 1},
        "DiskOnline": {"path": disks["vault"][1]},
        "DiskReplace": {"new": disks["free"][0], "force": True},
        "HostGroupCreate": {"name": "another", "hosts": ["esx2"]},
        "HostGroupSet": {"hosts": ["esx1", "esx2"]},
        "HostCreate": {"name": "esx9", "initiators": [f"{IQN}:esx9"], "chap": {"user": "esx9", "secret": "a-long-secret-9"}},
        "HostSet": {"initiators": [f"{IQN}:esx1"], "max_iops": 1000},
        "LevelCreate": {"name": "silver", "class": "non-critical", "max_iops": 500, "burst_seconds": 5},
        "LevelSet": {"max_iops": 900},
        "LoginCreate": {"name": "login", "password": "correct horse battery"},
        "MappingCreate": {"volume": "tank/two", "host": "esx2", "lun": 7},
        "MoveKeep": {"name": "tank/kept"},
        "PoolCreate": {"name": "third", "layout": "mirror", "disks": disks["free"][:2], "calibrate": False, "force": True},
        "PoolSet": {"trash_keep_seconds": 86400, "threshold_percents": [70, 90]},
        "PoolAdd": {"disks": disks["free"][:2], "layout": "mirror", "force": True},
        "PoolImport": {"disks": disks["vault"]},
        "PoolScrub": {"action": "start"},
        "ProjectCreate": {"name": "tank/play", "compression": "zstd-3", "quota_bytes": 64 * MIB, "hosts": ["esx2"]},
        "ProjectSet": {"compression": "off", "sync": "standard", "level": "gold", "inherit": ["hosts"]},
        "ReportCreate": {"name": "validation", "html": "<p>All met.</p>", "json": "[]"},
        "SetupFinish": {"name": "root", "password": "correct horse battery", "secret": "not-the-secret"},
        "SnapshotCreate": {"name": "now", "volumes": ["tank/one", "tank/two"]},
        "SnapshotSet": {"held": True, "template": False},
        "SnapshotClone": {"name": "tank/copy"},
        "SnapshotRollback": {"force": True},
        "ThresholdCreate": {"name": "slow", "spec": {"expression": "disk.latency[device]", "above": 5e7, "over_seconds": 60, "severity": "info"}},
        "ThresholdSet": {"spec": {"expression": "disk.busy", "above": 950}},
        "TokenSet": {"name": "spare"},
        "TokenCreate": {"name": "another", "role": "viewer", "expires_in_seconds": 3600},
        "TrashRestore": {"name": "tank/back"},
        "UserCreate": {"name": "else", "role": "viewer", "password": "correct horse battery"},
        "UserSet": {"role": "operator"},
        "VolumeCreate": {"name": "tank/new", "size_bytes": 8 * MIB, "block_size_bytes": 8192, "compression": "lz4", "level": "gold", "hosts": ["esx1"]},
        "VolumeSet": {"size_bytes": 32 * MIB, "compression": "gzip-6", "snapshot_every_seconds": 3600, "snapshot_keep": {"last": 3, "daily": 7}},
        "VolumeMove": {"pool": "vault"},
        "WorksheetCreate": {"name": "graphs", "spec": {"graphs": [GRAPH], "seconds": 300}},
        "WorksheetSet": {"spec": {"graphs": [GRAPH, {"expression": "disk.ops[op]", "title": "Disks", "limit": 3}], "seconds": 60}},
    }  # fmt: skip


class World:
    def __init__(self, owner, disks):
        self.owner = owner
        self.disks = disks

    @staticmethod
    def disks_of(daemon):
        return {pool: [daemon.disk(f"{pool}{n}") for n in range(count)] for pool, count in (("tank", 2), ("vault", 2), ("free", 3))}

    def mend(self):
        """Returns what had to be made."""
        owner, made = self.owner, []
        self.idle()
        self.pools(made)
        mine = {kind: set(names) for kind, names in NAMES.items()}
        # From what holds others back to what is held.
        for kind in ["mappings", "volumes", "snapshots", "bookmarks", "trash", "projects", "levels", "host-groups", "hosts", "tokens", "users", "worksheets", "reports", "thresholds"]:
            self.thin(kind, mine[kind] | ALWAYS | (set(self.clones()) if kind == "volumes" else set()))

        def need(kind, name, body, also=None):
            if name not in owner.names(kind):
                owner.call("POST", f"/api/v1/{kind}", {"name": name, **body})
                made.append(name)
                if also:
                    also()

        for host in NAMES["hosts"]:
            self.free_initiator(f"{IQN}:{host}", host)
            need("hosts", host, {"initiators": [f"{IQN}:{host}"]})
        need("host-groups", "cluster", {"hosts": []})
        need("levels", "gold", {"class": "mission-critical", "max_iops": 1000, "burst_seconds": 2})
        for project in NAMES["projects"]:
            need("projects", project, {})
        for volume in NAMES["volumes"]:
            need("volumes", volume, {"size_bytes": 16 * MIB})
        for snapshot in NAMES["snapshots"]:
            volume, _, name = snapshot.partition("@")
            if snapshot not in owner.names("snapshots"):
                owner.call("POST", "/api/v1/snapshots", {"name": name, "volumes": [volume]})
                made.append(snapshot)
        if "tank/one#first" not in owner.names("bookmarks"):
            owner.call("POST", "/api/v1/bookmarks", {"snapshot": "tank/one@first"})
            made.append("tank/one#first")
        # One that is held, or a template, is not deleted.
        for item in owner.call("GET", "/api/v1/snapshots?limit=1000")["items"]:
            if item["name"] in NAMES["snapshots"] and (item["spec"]["held"] or item["spec"]["template"]):
                owner.call("PATCH", owner.place("snapshots", item["name"]), {"held": False, "template": False})
        # A level that something uses is not deleted.
        for kind in ("projects", "volumes"):
            for item in owner.call("GET", f"/api/v1/{kind}?limit=1000")["items"]:
                if item["spec"]["level"] != "none" and item["spec"]["sources"]["level"] == "own":
                    try:
                        owner.call("PATCH", owner.place(kind, item["name"]), {"level": "none"})
                    except Refused:
                        pass  # Of a pool that is only read, say.
        # A clone that is promoted has changed places with what it was made of.
        if not self.clones():
            place = owner.place("snapshots", "tank/one@first")
            taken = owner.names("volumes")
            name = next(name for name in (f"tank/clone{n}" for n in range(1000)) if name not in taken)
            owner.call("POST", f"{place}/clone", {"name": name})
            made.append("a clone")
        if "tank/gone" not in owner.names("trash"):
            need("volumes", "tank/gone", {"size_bytes": MIB})
            owner.call("DELETE", f"{owner.place('volumes', 'tank/gone')}?force=true&with_snapshots=true")
        # The first has to be an administrator, and no request can take the last one away.
        need("users", "root", {"role": "admin", "password": "correct horse battery"})
        # In no path: what requests do to users must not keep it from logging in.
        need("users", "login", {"role": "viewer", "password": "correct horse battery"})
        need("users", "somebody", {"role": "viewer", "password": "correct horse battery"})
        need("tokens", "spare", {"role": "viewer"})
        need("worksheets", "sheet", {"spec": {"graphs": [GRAPH], "seconds": 60}})
        # Where nobody listens, on this machine: nothing that is tried here leaves it.
        need("channels", "log", {"spec": {"delivery": {"syslog": {"host": "127.0.0.1", "port": 9, "transport": "udp"}}}})
        need("thresholds", "busy", {"spec": {"expression": "disk.busy[device]", "above": 900}})
        need("reports", "sizing", {"html": "<p>Enough.</p>", "json": "{}"})
        if not owner.call("GET", "/api/v1/mappings?volume=tank%2Fone")["items"]:
            owner.call("POST", "/api/v1/mappings", {"volume": "tank/one", "host": "esx1"})
            made.append("a mapping")
        return made

    def idle(self):
        """Waits for what is going on: a pool in the middle of something is refused most requests."""
        for task in self.owner.call("GET", "/api/v1/tasks?limit=1000")["items"]:
            if task["state"] in ("queued", "running"):
                try:
                    self.owner.ended(task)
                except Refused:
                    pass  # It ended, and that is what was waited for.

    def pools(self, made):
        """`vault` is made anew whenever it is not as it was; `tank` only if it is not there."""
        owner = self.owner
        pools = {pool["name"]: pool for pool in owner.call("GET", "/api/v1/pools")["items"]}
        for name in list(pools):
            if name not in ("tank", "vault"):
                self.destroy(pools.pop(name))
        if "vault" in pools:
            disks = [disk for disk in owner.call("GET", "/api/v1/disks?limit=1000")["items"] if disk["spec"]["pool"] == "vault"]
            status = pools["vault"]["status"]
            if sorted((disk["name"], disk["status"]["state"]) for disk in disks) != [(path, "online") for path in self.disks["vault"]] or status["state"] != "online" or status["read_only"]:
                self.destroy(pools.pop("vault"))
        for name in ("tank", "vault"):
            if name not in pools:
                body = {"name": name, "layout": "mirror", "disks": self.disks[name], "calibrate": False, "force": True}
                owner.call("POST", "/api/v1/pools", body)
                made.append(name)

    def destroy(self, pool):
        place = self.owner.place("pools", pool["name"])
        try:
            self.owner.call("DELETE", place)
        except Refused:
            # Read-only, say. It is let go of, and its disks are taken by force.
            self.owner.call("POST", f"{place}/export")

    def thin(self, kind, keep):
        """Removes what others made, when there is much of it or it is in the way of what has to be here."""
        owner = self.owner
        items = owner.call("GET", f"/api/v1/{kind}?limit=1000")["items"]
        key = "id" if kind in ("mappings", "trash") else "name"
        if kind == "mappings":
            keep = {item["id"] for item in items if item["spec"]["volume"] == "tank/one"}
        left = [item for item in items if item.get("name") not in keep and item["id"] not in keep and not item.get("status", {}).get("built_in")]
        if kind == "volumes":
            # What moved away must not be in the way of what moves next.
            moved = [item for item in left if item["name"].startswith("vault/")]
            left = moved + (left if len(left) > LEFT_MAX else [])
        elif len(left) <= LEFT_MAX:
            return
        more = {"volumes": "?purge=true&force=true&with_snapshots=true", "hosts": "?unmap=true", "host-groups": "?unmap=true"}
        for item in left:
            try:
                if kind == "snapshots":
                    owner.call("PATCH", owner.place(kind, item["name"]), {"held": False, "template": False})
                owner.call("DELETE", owner.place(kind, item[key]) + more.get(kind, ""))
            except Refused:
                pass  # Something else still has it; it goes with that, or the next time.

    def free_initiator(self, initiator, host):
        for item in self.owner.call("GET", "/api/v1/hosts?limit=1000")["items"]:
            if item["name"] != host and initiator in item["spec"]["initiators"]:
                self.owner.call("DELETE", f"{self.owner.place('hosts', item['name'])}?unmap=true")

    def clones(self):
        return [item["name"] for item in self.owner.call("GET", "/api/v1/volumes?limit=1000")["items"] if item["status"].get("origin")]

    def closed(self):
        """Closes `vault`, so that there is something to import."""
        if "vault" in self.owner.names("pools"):
            self.owner.call("POST", f"{self.owner.place('pools', 'vault')}/export")

    def candidates(self, kind, operation=None):
        """Names and, for what has none, identifiers."""
        if operation == "VolumePromote":
            return self.clones()
        if operation == "VolumeMove":
            return ["tank/bare"]  # The others have snapshots, which do not move.
        if kind in LOOKED_UP:
            return [item["id"] for item in self.owner.call("GET", f"/api/v1/{kind}?limit=3")["items"]]
        return NAMES[kind]


def segment(name):
    return quote(name, safe="")

"""Makes the runtime_env that gives each worker of a Ray job the library, from prefixes and
settings."""
import os
import platform

SETTINGS = frozenset("""
    announce block buckets cluster cluster_deadline cluster_fill cluster_job cluster_login_file
    cluster_name cluster_origin cluster_trust command consistency disk disk_dir io_engine log
    max_file metadata metadata_ram metadata_ttl mode name observe packs prefetch prefetch_depth
    prefetch_list profile profile_all profile_every progress ram ram_dir ram_keep ring rss
    s3_addressing s3_anonymous s3_timeout stats stats_format stats_interval strict""".split())
# Each worker of Ray is a separate job. So the region must outlive a worker, and a report for each
# worker would only be noise.
DEFAULTS = {"ram_keep": "1", "stats": "off"}
LIBRARY = "libcubeshim.so"


def of_prefixes(given):
    """Returns one path, or several paths, in the format of CUBESHIM_PREFIXES."""
    paths = [given] if isinstance(given,
                                  (str, bytes)) or hasattr(given, "__fspath__") else list(given)
    paths = [os.fsdecode(path) for path in paths]
    for path in paths:
        parts = path.split("/")
        if not path.startswith("/") or not path.strip(
                "/") or ".." in parts or ":" in path or "\0" in path:
            raise ValueError(
                "%r is not a prefix: it takes the absolute path of a directory other than /, "
                "without '..' and ':'"
                % path)
    return ":".join(paths)


def of_setting(name, value):
    if name not in SETTINGS:
        raise TypeError(
            "%r is not a setting: `cubeshim run --help-all` lists them as options; "
            "--disk-dir is disk_dir here"
            % name)
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, (int, str)) or hasattr(value, "__fspath__"):
        text = str(os.fspath(value) if hasattr(value, "__fspath__") else value)
        if "\0" not in text and "\n" not in text:
            return text
    raise TypeError("%s=%r: a setting is a text, a number, a path or a truth value" % (name, value))


def is_usable(path):
    """Checks, like the command, that no other user can have put the library there."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return False
    return owner in (0, os.geteuid(), os.stat(__file__).st_uid)


def find_library():
    """Returns the path of the library that this process has loaded, or of the library in the
    package."""
    for preloaded in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if os.path.basename(preloaded) == LIBRARY and is_usable(preloaded):
            return os.path.abspath(preloaded)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for prefix in (os.path.join(package, "prefix"), os.path.join(package, *[os.pardir] * 4)):
        for folder in ("lib/%s-linux-gnu" % platform.machine(), "lib64", "lib"):
            path = os.path.normpath(os.path.join(prefix, folder, LIBRARY))
            if is_usable(path):
                return path
    raise ValueError(
        "%s did not come with this package: library= takes its path, "
        "which is the same on all nodes"
        % LIBRARY)


def in_front(library, others):
    """Returns a value for LD_PRELOAD that contains the library only as its first entry."""
    rest = [
        word for word in others.replace(" ", ":").split(":")
        if word and os.path.basename(word) != LIBRARY
    ]
    return ":".join([library] + rest)


def env(prefixes, *, library=None, runtime_env=None, **settings):
    """Returns a runtime_env for ray.init(), ray.remote() and ray.data in which `prefixes` are
    cached.

    prefixes: an absolute path or a sequence of absolute paths, not / and without ':'. library: the
    path of libcubeshim.so on all nodes; default: the library of this process or package.
    runtime_env: the program's own runtime_env. It is copied, and its entries stay. settings: the
    variables CUBESHIM_*, in lower case and without CUBESHIM_: ram="32G", disk_dir="/nvme/cache";
    `cubeshim run --help-all` lists them as options. Each is a str, a number, a bool or an
    os.PathLike.

    Returns a dict whose env_vars have the settings and LD_PRELOAD. Raises ValueError for a path
    that cannot be a prefix, for an empty `prefixes`, and for a variable to which runtime_env
    assigns another value; TypeError for an unknown setting or a value of another type."""
    made = dict(runtime_env or {})
    variables = dict(made.get("env_vars") or {})
    ours = {"CUBESHIM_PREFIXES": of_prefixes(prefixes)}
    if not ours["CUBESHIM_PREFIXES"] and not settings.get("packs"):
        raise ValueError("there is nothing to cache: neither a prefix nor packs= is given")
    for name, value in settings.items():
        ours["CUBESHIM_" + name.upper()] = of_setting(name, value)
    for name, value in ours.items():
        if variables.get(name, value) != value:
            raise ValueError("%s is %r in runtime_env and %r here: give it once" %
                             (name, variables[name], value))
    for name, value in DEFAULTS.items():
        variables.setdefault("CUBESHIM_" + name.upper(), value)
    variables.update(ours)
    if library is not None:
        library = os.fsdecode(library)
        if not library.startswith("/") or ":" in library or " " in library:
            raise ValueError(
                "library=%r: it takes the absolute path of %s, without ':' and spaces" %
                (library, LIBRARY))
    variables["LD_PRELOAD"] = in_front(library or find_library(), variables.get("LD_PRELOAD", ""))
    made["env_vars"] = variables
    return made

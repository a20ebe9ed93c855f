"""What the operand of a `?` fails with, as far as the file tells.

A call by its full path is looked up in a table of well-known functions, a method in one of well-known types: a method
says nothing by its name alone (`flush` of a log is not `flush` of a file), but for a few that only readers and writers
have. What is neither is named, for the whole tree to tell: `?path::to::function`, `?Type.method`, `?.method`.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.rust.scopes import annotation_of, bound_of, value_of
from windtunnel.catalog.extract.syntax import one_line, text

IO_ERROR, SERDE_JSON, REQWEST, FMT_ERROR = "std::io::Error", "serde_json::Error", "reqwest::Error", "std::fmt::Error"

_BY_PATH: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), error)
    for pattern, error in (
        (r"^(?:std|tokio|async_std)::(?:fs|net)::\w+(?:::\w+)?$", IO_ERROR),
        (r"^(?:fs_err|tempfile)::(?:\w+::)*\w+$", IO_ERROR),
        (r"^(?:std|tokio)::io::(?:copy\w*|read_to_string|stdin\w*|stdout\w*)$", IO_ERROR),
        (r"^std::env::(?:current_dir|current_exe|set_current_dir)$|^std::path::absolute$", IO_ERROR),
        (r"^tokio::signal::ctrl_c$", IO_ERROR),
        (r"^std::env::var$", "std::env::VarError"),
        (r"^serde_json::(?:from|to)_\w+$", SERDE_JSON),
        (r"^serde_yaml::(?:from|to)_\w+$", "serde_yaml::Error"),
        (r"^toml::from_\w+$", "toml::de::Error"),
        (r"^toml::to_\w+$", "toml::ser::Error"),
        (r"^reqwest::get$", REQWEST),
        (r"^url::Url::(?:parse|parse_with_params)$", "url::ParseError"),
        (r"^uuid::Uuid::(?:parse_str|try_parse)$", "uuid::Error"),
        (r"^semver::(?:Version|VersionReq)::parse$", "semver::Error"),
        (r"^regex::Regex::new$", "regex::Error"),
        (r"^std::str::from_utf8$", "std::str::Utf8Error"),
        (r"^(?:std::string::)?String::from_utf8$", "std::string::FromUtf8Error"),
        (r"^std::ffi::CString::new$", "std::ffi::NulError"),
        (r"^tokio::(?:spawn|task::(?:spawn|spawn_blocking))$", "tokio::task::JoinError"),
        (r"^tokio::time::timeout$", "tokio::time::error::Elapsed"),
        (r"^[iu](?:8|16|32|64|128|size)::(?:from_str|from_str_radix)$", "std::num::ParseIntError"),
        (r"^[iu](?:8|16|32|64|128|size)::try_from$", "std::num::TryFromIntError"),
        (r"^f(?:32|64)::from_str$", "std::num::ParseFloatError"),
    )
)  # fmt: skip
_IO_TYPES = re.compile(
    r"^(?:File|Buf(?:Reader|Writer)|LineWriter|Std(?:in|out|err)(?:Lock)?|(?:Tcp|Unix)(?:Stream|Listener)|(?:Udp|Tcp)Socket|"
    r"UnixDatagram|Owned(?:Read|Write)Half|OpenOptions|DirBuilder|ReadDir|DirEntry|Command|Child(?:Stdin|Stdout|Stderr)?|"
    r"NamedTempFile|(?:Async)?(?:Read|Write|BufRead|Seek)(?:Ext)?|Cursor)$"
)
_PATH_TYPES = re.compile(r"^(?:Path|PathBuf)$")
_STD_HEADS = re.compile(r"^(?:File|OpenOptions|(?:Tcp|Unix)(?:Stream|Listener)|UdpSocket|CString)$")
_STD_PATHS = {
    "File": "std::fs::File", "OpenOptions": "std::fs::OpenOptions", "CString": "std::ffi::CString",
    "TcpStream": "std::net::TcpStream", "TcpListener": "std::net::TcpListener", "UdpSocket": "std::net::UdpSocket",
    "UnixStream": "std::net::UnixStream", "UnixListener": "std::net::UnixListener",
}  # fmt: skip
_IO_METHODS = re.compile(
    r"^(?:write\w*|read\w*|flush|seek|rewind|stream_position|sync_all|sync_data|set_len|set_permissions|metadata|file_type|"
    r"try_clone|open|create|spawn|output|status|wait|try_wait|wait_with_output|kill|connect|accept|bind|shutdown|"
    r"set_\w*(?:timeout|nonblocking|nodelay|ttl)|peer_addr|local_addr|send_to|recv_from|recv|send|peek|next_line|next_entry|persist)$"
)
_PATH_METHODS = re.compile(r"^(?:metadata|symlink_metadata|canonicalize|read_dir|read_link|try_exists)$")
_ONLY_IO = re.compile(
    r"^(?:write_all|read_to_string|read_to_end|read_exact|read_line|sync_all|sync_data|"
    r"canonicalize|read_dir|symlink_metadata|try_exists)$"
)
_REQWEST_METHODS = re.compile(r"^(?:send|text|bytes|json|chunk)$")
_PARSED = {
    "bool": "std::str::ParseBoolError", "char": "std::char::ParseCharError",
    "IpAddr": "std::net::AddrParseError", "SocketAddr": "std::net::AddrParseError",
}  # fmt: skip
_CHANGES = re.compile(r"^(?:map_err|ok|ok_or|ok_or_else|context|with_context|or|or_else|wrap_err|wrap_err_with|err)$")
_KEEPS = frozenset((
    "map", "inspect", "inspect_err", "boxed", "boxed_local", "instrument", "in_current_span", "fuse",
))  # fmt: skip
_CONVERTS = re.compile(r"^(?:\w+::)*(?:Into::into|From::from|[A-Z]\w*::from)$")
_PASSED_THROUGH = frozenset((
    "unwrap", "expect", "context", "with_context", "map_err", "ok_or", "ok_or_else", "by_ref", "as_mut", "as_ref",
    "lock", "get_mut", "borrow_mut", "clone", "write", "read", "as_deref_mut", "take", "unwrap_or_else",
))  # fmt: skip
_BUILDERS = {"Command": {"spawn": "Child"}, "OpenOptions": {"open": "File"}}
_WRAPPERS = re.compile(r"^(?:\w+::)*(?:Box|Arc|Rc|Mutex|RwLock|RefCell|Option|Pin)<(.+)>$")


def error_of(reader: RustReader, node: Node) -> str:
    """The type that an expression fails with, or by whom that is told; empty: it can't be known."""
    while node.type in ("await_expression", "parenthesized_expression", "reference_expression") and node.named_children:
        node = node.named_children[-1 if node.type == "reference_expression" else 0]
    if node.type == "macro_invocation":
        return _written(reader, node)
    if node.type == "identifier":
        return _of_value(reader, node)
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    if function is None:
        return ""
    generic = ""
    if function.type == "generic_function":
        generic = text(function.child_by_field_name("type_arguments")).strip("<>: ")
        function = function.child_by_field_name("function") or function
    if function.type == "field_expression":
        return _of_method(reader, node, function, generic)
    return _of_path(reader, function)


def _of_value(reader: RustReader, name: Node) -> str:
    """A variable that holds a result, or what gives one."""
    given = value_of(text(name), name)
    return (
        error_of(reader, given) if given is not None and given.type in ("call_expression", "await_expression") else ""
    )


def _of_path(reader: RustReader, function: Node) -> str:
    path = re.sub(r"::<[^()]*>|<[^()]*>", "", one_line(text(function))).replace(" ", "")
    if not re.fullmatch(r"[\w:]+", path) or path in ("Ok", "Err", "Some"):
        return ""
    full = reader.full_path(path)
    head = full.partition("::")[0]
    if _STD_HEADS.match(head) and head not in reader.defined:
        full = _STD_PATHS[head] + full[len(head) :]
    for pattern, error in _BY_PATH:
        if pattern.match(full):
            return error
    owner = reader.owner_of(function)
    return f"?{re.sub(r'^Self::', f'{owner}::', path)}" if path.rpartition("::")[2][:1].islower() else ""


def _of_method(reader: RustReader, call: Node, function: Node, generic: str) -> str:
    receiver, method = function.child_by_field_name("value"), text(function.child_by_field_name("field"))
    if receiver is None:
        return ""
    if _CHANGES.match(method):
        arguments = call.child_by_field_name("arguments")
        given = text(arguments.named_children[0]) if arguments is not None and arguments.named_children else ""
        return error_of(reader, receiver) if method == "map_err" and _CONVERTS.match(given) else ""
    if method in _KEEPS:
        return error_of(reader, receiver)
    if method == "parse":
        return _parsed(generic)
    type_ = type_of(reader, receiver)
    if _IO_TYPES.match(type_):
        return IO_ERROR if _IO_METHODS.match(method) else ""
    if (_PATH_TYPES.match(type_) and _PATH_METHODS.match(method)) or (not type_ and _ONLY_IO.match(method)):
        return IO_ERROR
    is_without_arguments = text(call.child_by_field_name("arguments")) == "()"
    is_awaited = call.parent is not None and call.parent.type == "await_expression"
    if method == "error_for_status" or (
        _REQWEST_METHODS.match(method) and is_without_arguments and is_awaited and b"reqwest" in reader.data
    ):
        return REQWEST
    return f"?{type_}.{method}"


def _parsed(type_: str) -> str:
    if re.fullmatch(r"[iu](?:8|16|32|64|128|size)", type_):
        return "std::num::ParseIntError"
    return "std::num::ParseFloatError" if type_ in ("f32", "f64") else _PARSED.get(type_.rpartition("::")[2], "")


def _written(reader: RustReader, macro: Node) -> str:
    """`write!(file, …)`: by what is written to."""
    if text(macro.child_by_field_name("macro")) not in ("write", "writeln"):
        return ""
    target = one_line(text(macro.named_children[-1])[1:]).partition(",")[0].strip()
    target = re.sub(r"^(?:&mut\s+|\*|&)+", "", target)
    if re.match(r"(?:std::)?(?:io::)?std(?:out|err)\(\)", target):
        return IO_ERROR
    match = re.fullmatch(r"(self\.)?(\w+)(?:\.lock\(\))?", target)
    if match is None:
        return ""
    type_ = reader.field_type(match[2], macro) if match[1] else _named(reader, match[2], macro, 0)
    if type_ in ("Formatter", "String"):
        return FMT_ERROR
    return IO_ERROR if _IO_TYPES.match(simplified(reader, type_, macro)) else ""


# --- types of receivers -----------------------------------------------------------------------------------------------


def type_of(reader: RustReader, node: Node, depth: int = 0) -> str:
    """The type of an expression, by its last name and without references and wrappers; empty: not known."""
    while node.type in ("await_expression", "parenthesized_expression", "reference_expression", "try_expression",
                        "unary_expression") and node.named_children:  # fmt: skip
        node = node.named_children[-1]
    if depth > 6:
        return ""
    if node.type == "self":
        return reader.owner_of(node)
    if node.type == "identifier":
        return _named(reader, text(node), node, depth)
    if node.type == "field_expression" and text(node.child_by_field_name("value")) == "self":
        return simplified(reader, reader.field_type(text(node.child_by_field_name("field")), node), node)
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    if function is None:
        return ""
    if function.type == "field_expression":
        return _of_result(reader, function, depth)
    path = re.sub(r"::<[^()]*>|<[^()]*>", "", one_line(text(function)))
    if match := re.fullmatch(r"(?:\w+::)*std(in|out|err)", path):
        return f"Std{match[1]}"
    owner, _, name = path.rpartition("::")
    owner = owner.rpartition("::")[2]
    if owner == "Self":
        return reader.owner_of(node)
    return owner if owner[:1].isupper() and name[:1].islower() else ""


def _of_result(reader: RustReader, function: Node, depth: int) -> str:
    """Of a method's result."""
    method, receiver = text(function.child_by_field_name("field")), function.child_by_field_name("value")
    type_ = type_of(reader, receiver, depth + 1) if receiver is not None else ""
    if type_ in _BUILDERS:
        return _BUILDERS[type_].get(method, type_)
    return type_ if method in _PASSED_THROUGH else ""


def _named(reader: RustReader, name: str, node: Node, depth: int) -> str:
    """Of a variable or parameter."""
    annotated = annotation_of(name, node)
    if annotated:
        return simplified(reader, annotated, node)
    given = value_of(name, node)
    return type_of(reader, given, depth + 1) if given is not None else ""


def simplified(reader: RustReader, annotated: str, node: Node) -> str:
    """A type's last name; of a type parameter the trait that bounds it."""
    type_ = re.sub(r"^(?:&\s*|'\w+\s+|mut\s+|dyn\s+|impl\s+|\()+", "", annotated.strip()).rstrip(")")
    while match := _WRAPPERS.match(type_):
        type_ = re.sub(r"^(?:&\s*|'\w+\s+|mut\s+|dyn\s+|impl\s+)+", "", match[1])
    type_ = re.sub(r"<.*|\s*\+.*", "", type_).rpartition("::")[2].strip()
    return bound_of(type_, node) or type_

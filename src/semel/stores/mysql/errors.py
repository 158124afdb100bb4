"""Error numbers of MySQL, MariaDB and their client libraries by kind.

A number that is not listed has no kind: its error is a bug and is raised as it is.
"""

from __future__ import annotations

from typing import Final

from semel.stores.sql.adapters.multi_statement import TOO_LARGE
from semel.stores.sql.errors import ErrorKind

_KINDS: Final = {
    ErrorKind.CONFLICT: (1213, 1020),  # deadlock; "record has changed since last read" (MariaDB, snapshot isolation)
    ErrorKind.HELD: (1205, 3572),  # lock wait timeout; NOWAIT
    ErrorKind.SLOW: (1317, 1969, 3024),  # interrupted; max_statement_time (MariaDB); max_execution_time (MySQL)
    # 1180: an error during COMMIT. Whether it took effect is not known.
    ErrorKind.LOST: (
        *(1053, 1077, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1184, 1927, 3169, 4031),
        *(2000, 2002, 2003, 2005, 2006, 2013, 2014, 2026, 2027, 2055),
    ),
    ErrorKind.READ_ONLY: (1209, 1223, 1290, 1792, 1836, 3100),
    ErrorKind.MISSING: (1051, 1054, 1146, 1932),
    ErrorKind.WRONG_LOGIN: (1045, 1698),
    ErrorKind.NO_LOGIN: (1130, 1131, 1251, 1396, 1820, 3118, 3955, 4151),
    ErrorKind.NO_DATABASE: (1049,),
    # 1044: also where there is no such database and the user may not know.
    # 1419: a trigger, where a binary log is written and the user is not trusted with them.
    ErrorKind.DENIED: (1044, 1142, 1143, 1227, 1370, 1419),
    ErrorKind.FULL: (1021, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1206, 1226, 3675),
    ErrorKind.OF_ONE: (1048, 1062, TOO_LARGE, 1162, 1264, 1265, 1366, 1406, 1690, 3819, 3988, 4025),
    ErrorKind.MARK_GONE: (1305,),
    ErrorKind.DAMAGED: (126, 127, 1034, 1194, 1712, 1877),
}
_MEANING: Final = {number: kind for kind, numbers in _KINDS.items() for number in numbers}


def kind_of_number(number: object) -> ErrorKind | None:
    """What a number means."""
    return _MEANING.get(number) if isinstance(number, int) else None


def mysql_error_kind(error: BaseException) -> ErrorKind | None:
    """What an error of any client library for MySQL means, by its number and its DB-API class."""
    number = error.args[0] if error.args else None
    if isinstance(number, int) and number:
        return kind_of_number(number)
    names = {kind.__name__ for kind in type(error).__mro__}
    if "InterfaceError" in names or isinstance(error, (OSError, EOFError)):
        return ErrorKind.LOST
    return ErrorKind.OF_ONE if "DataError" in names else None

"""What a connection believes the database's certificate by, where its URL asks for that to be checked.

libpq takes a file in the user's home folder by itself, which no host has; and its `sslrootcert=system` means a path that was
compiled into the OpenSSL which psycopg brings along, which differs from system to system. So the roots are those of certifi, a
package that is deployed with the application: the same everywhere, and both of Azure's are among them.
"""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict

CHECKED = ("verify-ca", "verify-full")


def trusted_roots(url: str) -> dict[str, Any]:
    """The argument for `psycopg.connect` that names the roots.

    None where the URL checks nothing, and where it or PGSSLROOTCERT names other roots.
    """
    parts = conninfo_to_dict(url)
    if parts.get("sslmode") not in CHECKED or parts.get("sslrootcert") or os.environ.get("PGSSLROOTCERT"):
        return {}
    import certifi

    return {"sslrootcert": certifi.where()}

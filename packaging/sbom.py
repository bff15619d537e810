"""Lists the components that end up in the binaries of a release, as CycloneDX."""

import datetime
import os
import subprocess
import sys
import uuid
from pathlib import Path

from sysroot import HEADER_PACKAGES, SOURCE_PACKAGES, package_version
from targets import version

LICENCES = {
    "libfmt-dev": "MIT", "libxxhash-dev": "BSD-2-Clause", "libexpected-dev": "CC0-1.0",
    "nlohmann-json3-dev": "MIT", "libcli11-dev": "BSD-3-Clause", "liburing-dev": "MIT",
    "prometheus-cpp-dev": "MIT", "libcivetweb-dev": "MIT",
    "libcurl4-openssl-dev": "curl", "libmbedtls-dev": "Apache-2.0"
}
# The compiler brings libc++, libc++abi, libunwind and compiler-rt.
ZIG_LICENCE = "Apache-2.0 WITH LLVM-exception"


def document() -> str:
    """Runs in the venv of the release's tools."""
    from importlib.metadata import version as installed
    from cyclonedx.factory.license import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot5
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

    def component(name: str, number: str, licence: str, kind: str,
                  namespace: str | None = None) -> Component:
        purl = PackageURL(kind, namespace, name, number)
        return Component(type=ComponentType.LIBRARY, name=name, version=number, purl=purl,
                         bom_ref=str(purl), licenses=[LicenseFactory().make_from_string(licence)])

    bom = Bom()
    bom.metadata.component = component("cubeshim", version(), "Apache-2.0", "generic")
    parts = [
        component(package, package_version(package), LICENCES[package], "deb", "debian")
        for package in [*HEADER_PACKAGES, *SOURCE_PACKAGES.values()]
    ]
    parts.append(component("ziglang", installed("ziglang"), ZIG_LICENCE, "pypi"))
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(bom.metadata.component, parts)
    # The same components and the same commit give the same bytes.
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bom.serial_number = uuid.uuid5(
        uuid.NAMESPACE_URL, " ".join([str(epoch), *sorted(str(part.purl) for part in parts)]))
    text = JsonV1Dot5(bom).output_as_string(indent=2)
    if (error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)) is not None:
        raise SystemExit(f"sbom: {error}")
    return text


def write(to: Path, programs: Path) -> None:
    text = subprocess.run([programs / "python", __file__], check=True, capture_output=True,
                          text=True).stdout
    to.write_text(text)


if __name__ == "__main__":
    sys.stdout.write(document())

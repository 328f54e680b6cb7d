from spack.package import *


class Crossdock(Package):
    """Shared memory for workflows whose tasks live in containers of their own."""

    license("Apache-2.0")

    # There is no published archive yet, so Spack builds a checkout: spack develop --path CHECKOUT crossdock@main
    version("main", branch="main", git="file:///path/to/crossdock")

    variant("python", default=True, description="Build the Python module")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("rust@1.85:", type="build")
    depends_on("boost@1.81:", type=("build", "link"))  # headers, for C++ programs
    with when("+python"):
        extends("python@3.9:")
        depends_on("py-pip", type="build")
        depends_on("py-maturin@1.9:1", type="build")
        depends_on("py-numpy@1.24:", type=("build", "run"))

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("build", "--release", "--locked", "-p", "crossdock-cli", "-p", "crossdock-capi", "-p", "crossdock-preload")
        make("install", "PREFIX=" + prefix, "FROM=" + join_path(self.stage.source_path, "target", "release"))
        if spec.satisfies("+python"):
            python("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--prefix", prefix, "bindings/python")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.crossdock)("--version")

#include "serve/caller.h"

#include "catch.h"

using namespace emm::run;

TEST_CASE("the CUDA runtime, the interposer and libemm-run pass calls on") {
    for (const char *path :
         {"/usr/local/cuda/lib64/libcudart.so.12", "/opt/torch/lib/libcudart-d0da41ae.so.11.0",
          "/opt/emm/run/libcuda.so.1", "/opt/emm/run/libemm-run.so"}) {
        CHECK(library_at(path) == Library::passing);
    }
}

TEST_CASE("PyTorch's cache is in one of its libraries") {
    CHECK(library_at("/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so") ==
          Library::torch);
    CHECK(library_at("/usr/lib/libc10_cuda.so.2.4") == Library::torch);
    CHECK(library_at("/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so") ==
          Library::other);
}

TEST_CASE("CuPy's libraries are in its folders") {
    CHECK(library_at("/venv/site-packages/cupy_backends/cuda/api/runtime.cpython-312.so") ==
          Library::cupy);
    CHECK(library_at("/venv/site-packages/cupy/cuda/memory.cpython-312.so") == Library::cupy);
    CHECK(library_at("/venv/site-packages/cupyx/other.so") == Library::other);
}

TEST_CASE("the program itself and every other library have no cache") {
    for (const char *path : {"", "/usr/bin/python3", "/usr/lib/libcublas.so.12", "libcuda"}) {
        CHECK(library_at(path) == Library::other);
    }
    CHECK(cache_of_caller() == no_caches);
}

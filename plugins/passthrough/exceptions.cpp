// The C++ runtime inside a plugin has thread-local storage of its own, for exceptions. One
// initial-exec variable beside it makes the dynamic linker reserve that storage with each thread.
// Otherwise a thread's first exception takes memory for it; if there is none, the C library ends
// the process. Plugins that link libraries with much thread-local storage (rmm) leave this out: the
// room is small, and they would not load.
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local volatile bool is_set_aside = false;

[[gnu::constructor]] void set_aside() {
    is_set_aside = true;
}

} // namespace

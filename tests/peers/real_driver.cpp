// metered_driver.cpp is linked to this library, so that its name is among what it needs. Under that
// name it finds the real driver where it runs.
extern "C" __attribute__((visibility("default"))) int emmPeersNoDriver() {
    return 0;
}

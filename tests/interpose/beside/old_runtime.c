// Stands for the libstdc++.so.6 of another age, which a program has brought: the name, the first
// version, and nothing that anything else here could use.
int old_runtime(void);

int old_runtime(void) {
    return 1;
}

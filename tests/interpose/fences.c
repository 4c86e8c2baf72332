// Whether the kernel makes fences for this process; it refuses until the process has registered.
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int cuInit(unsigned flags);
int (*volatile interposed)(unsigned) = cuInit; // so that the process has the interposer

int main(void) {
    const long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (known < 0 || !(known & MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        return 77; // skipped: this kernel has no such fences
    }
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
        perror("membarrier");
        return 1;
    }
    return 0;
}

/* The C library between Python and the driver; one of its builds has the name of the library that
 * PyTorch's cache is in. */
#include <semaphore.h>
#include <stddef.h>

typedef int (*Allocate)(unsigned long long *ret_ptr, size_t bytes);

static sem_t calling, held, allocated;

/* A call from within this library. */
int allocate_here(Allocate allocate, unsigned long long *ret_ptr, size_t bytes) {
    const volatile int result = allocate(ret_ptr, bytes); /* no tail call */
    return result;
}

/* The same, while a thread in hold_until_allocated() waits for its end. */
int allocate_while_held(Allocate allocate, unsigned long long *ret_ptr, size_t bytes) {
    sem_post(&calling);
    sem_wait(&held);
    const int result = allocate(ret_ptr, bytes);
    sem_post(&allocated);
    return result;
}

/* Waits until a thread is in allocate_while_held(), and no longer needs the interpreter's lock. */
void wait_for_call(void) {
    sem_wait(&calling);
}

/* The caller holds the interpreter's lock all the time. */
void hold_until_allocated(void) {
    sem_post(&held);
    sem_wait(&allocated);
}

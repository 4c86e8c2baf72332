// Calls an entry of the interposer for the first time, during which the interposer finds the
// driver, and a second time.
#include "first_call.h"

#include <stdio.h>

static int wrong_in(const char *call) {
    const Arguments seen = cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1.5, 2.5, 3.5, 4.5, 5.5,
                                          6.5, 7.5, 8.5, 9.5, 10.5);
    int wrong = 0;
    for (int i = 0; i < 10; i++) {
        if (seen.numbers[i] != i + 1 || seen.fractions[i] != i + 1.5) {
            printf("%s call: expected %d and %g as arguments %d, found %ld and %g\n", call, i + 1,
                   i + 1.5, i, seen.numbers[i], seen.fractions[i]);
            wrong++;
        }
    }
    return wrong;
}

int main(void) {
    const int first = wrong_in("first"), second = wrong_in("second");
    return first + second == 0 ? 0 : 1;
}

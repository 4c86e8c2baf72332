#include "check.h"

int failed_checks = 0;

static int passed = 0, failed = 0;

static void run(const test *tests) {
    for (; tests->sentence; tests++) {
        const int before = failed_checks;
        tests->run();
        const int good = failed_checks == before;
        good ? passed++ : failed++;
        printf("%s: %s\n", good ? "passed" : "FAILED", tests->sentence);
    }
}

int main(void) {
    run(missing_tests);
    run(error_tests);
    run(rule_tests);
    run(exchange_tests);
    run(dlpack_tests);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0 || passed == 0;
}

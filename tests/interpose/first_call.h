// The arguments and the result of the entry cuLaunchKernel here: more than the registers that calls
// have for each kind.
#pragma once

typedef struct Arguments {
    long numbers[10];
    double fractions[10];
} Arguments;

Arguments cuLaunchKernel(long n0, long n1, long n2, long n3, long n4, long n5, long n6, long n7,
                         long n8, long n9, double f0, double f1, double f2, double f3, double f4,
                         double f5, double f6, double f7, double f8, double f9);

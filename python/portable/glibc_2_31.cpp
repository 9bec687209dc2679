// GCC 12's static C++ library needs two names of glibc 2.32 and 2.36. The wheel of scripts/wheel
// defines them, so that glibc 2.31 is enough.

#include <sys/random.h>

extern "C" {

// With false, reference counts are always atomic.
char __libc_single_threaded = 0;

unsigned arc4random() {
  unsigned value = 0;
  while (getentropy(&value, sizeof value) != 0) {
  }
  return value;
}
}

#pragma once

/// Of operations on vectors, which mean nothing when they are called.
#define TESSERA_INLINE [[gnu::always_inline]] inline

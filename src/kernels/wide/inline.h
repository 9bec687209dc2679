#pragma once

/// Forces inlining of vector operations, because calls are slow.
#define TESSERA_INLINE [[gnu::always_inline]] inline

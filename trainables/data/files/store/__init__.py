"""Images of files, kept in the cache: as pixels, or as the bytes of the files."""

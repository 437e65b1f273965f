"""Operations on names: lookup, creation, rename, removal, and the transfer of histories."""

"""Operations of a deployment beyond the published interface, as validated data."""

"""A sign-on in a browser, from the address that is opened to the answer that comes back."""

"""Files and folders that stay available offline: `pins` lists them, `fetch` and `poll` get them."""

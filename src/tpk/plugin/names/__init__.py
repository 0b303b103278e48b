"""Names of plugins: where each comes from, and what is made of one."""

"""Many episodes of one environment by one policy: played at once, kept on disk, averaged."""

"""Engine: independent runs, in processes of this machine (``processes``) or on Ray (``ray``)."""
